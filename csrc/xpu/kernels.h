// SPDX-License-Identifier: Apache-2.0
// The XPU's kernels, by the contracts that they fulfil: raw pointers, an int as status.
// A wrapper neither allocates nor waits.
#ifndef VLLM_KUNLUN_XPU_KERNELS_H_
#define VLLM_KUNLUN_XPU_KERNELS_H_

#include "contracts/autoregressive.h"
#include "contracts/block_table.h"
#include "contracts/block_verification.h"
#include "contracts/dflash.h"
#include "contracts/fused_logits.h"
#include "contracts/gumbel.h"
#include "contracts/input_batch.h"
#include "contracts/kv_zero.h"
#include "contracts/logprob.h"
#include "contracts/mamba_state.h"
#include "contracts/markov.h"
#include "contracts/ngram.h"
#include "contracts/penalties.h"
#include "contracts/rejection.h"
#include "contracts/requests.h"
#include "contracts/rope.h"
#include "contracts/sampling.h"
#include "contracts/staged_write.h"
#include "contracts/step.h"
#include "contracts/token_mask.h"
#include "contracts/verify.h"

namespace vllm_kunlun {
namespace xpu {

// The stream that a launch is put into; null is the default one.
struct Stream {
  void* handle = nullptr;
};

// What a wrapper returns; other values are the runtime's errors.
enum Status : int {
  kOk = 0,
  kTooLarge = -1,  // a size is beyond the 31 bits that the kernels count with
};

int launch(const GatherBlockTables& a, const Stream& stream);
int launch(const ComputeSlotMappings& a, const Stream& stream);
int launch(const ApplyWrite& a, const Stream& stream);
int launch(const PreparePrefillInputs& a, const Stream& stream);
int launch(const PreparePosSeqLens& a, const Stream& stream);
int launch(const CombineSampledAndDraftTokens& a, const Stream& stream);
int launch(const GetNumSampledAndRejected& a, const Stream& stream);
int launch(const PostUpdate& a, const Stream& stream);
int launch(const ExpandIdxMapping& a, const Stream& stream);
int launch(const PostUpdateNumComputedTokens& a, const Stream& stream);
int launch(const DcpLocalSeqLens& a, const Stream& stream);
int launch(const ScatterNumAccepted& a, const Stream& stream);

int launch(const Temperature& a, const Stream& stream);
int launch(const MinP& a, const Stream& stream);
int launch(const Penalties& a, const Stream& stream);
int launch(const BinCount& a, const Stream& stream);
int launch(const Bias& a, const Stream& stream);
int launch(const BadWords& a, const Stream& stream);
int launch(const ApplyGrammarBitmask& a, const Stream& stream);

int launch(const GumbelSample& a, const Stream& stream);
int launch(const ComputeLocalLogitsStats& a, const Stream& stream);
int launch(const Rejection& a, const Stream& stream);
int launch(const Resample& a, const Stream& stream);
int launch(const InsertResampled& a, const Stream& stream);
int launch(const FlattenSampled& a, const Stream& stream);
int launch(const ComputeCumulativeLogP& a, const Stream& stream);
int launch(const ComputeLocalResidualMass& a, const Stream& stream);
int launch(const VerifyGreedy& a, const Stream& stream);
int launch(const VerifyDrawn& a, const Stream& stream);

// Several launches, which the stream keeps in order.
int launch(const FusedLogits& a, const Stream& stream);
int launch(const PrepareStep& a, const Stream& stream);
int launch(const RejectionSample& a, const Stream& stream);

int launch(const TopkLogSoftmax& a, const Stream& stream);
int launch(const Ranks& a, const Stream& stream);
int launch(const FillLogprobTokenIds& a, const Stream& stream);
int launch(const PromptLogprobsTokenIds& a, const Stream& stream);
int launch(const NumNans& a, const Stream& stream);

int launch(const PrepareDflashInputs& a, const Stream& stream);
int launch(const MarkovArgmax& a, const Stream& stream);
int launch(const PrepareDraftInputs& a, const Stream& stream);
int launch(const GatherContext& a, const Stream& stream);
int launch(const PrepareDraftPrefillInputs& a, const Stream& stream);
int launch(const PrepareDecodeInputs& a, const Stream& stream);
int launch(const UpdateDraftInputs& a, const Stream& stream);
int launch(const PrepareRopePositions& a, const Stream& stream);
int launch(const PrepareBlockTables& a, const Stream& stream);
int launch(const StoreDrafts& a, const Stream& stream);
int launch(const NgramDraft& a, const Stream& stream);
int launch(const AdaptDraftLength& a, const Stream& stream);
int launch(const ZeroKvBlocks& a, const Stream& stream);

int launch(const PreprocessMambaAlign& a, const Stream& stream);
int launch(const PrecopyMambaAlign& a, const Stream& stream);
// Two launches.
int launch(const PostprocessMamba& a, const Stream& stream);

}  // namespace xpu
}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_XPU_KERNELS_H_
