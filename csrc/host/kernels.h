// SPDX-License-Identifier: Apache-2.0
// The host's kernels. Each does the programs [begin, end) of a launch; a program's
// number counts the grid with its last axis running fastest.
#ifndef VLLM_KUNLUN_HOST_KERNELS_H_
#define VLLM_KUNLUN_HOST_KERNELS_H_

#include <cstdint>

#include "contracts/autoregressive.h"
#include "contracts/block_table.h"
#include "contracts/block_verification.h"
#include "contracts/dflash.h"
#include "contracts/fused_logits.h"
#include "contracts/gumbel.h"
#include "contracts/input_batch.h"
#include "contracts/kv_zero.h"
#include "contracts/layers.h"
#include "contracts/linear.h"
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

namespace vllm_kunlun::host {

// One thread, in order: overlapping writes depend on it.
void apply_write(const ApplyWrite& a);

void compute_slot_mappings(const ComputeSlotMappings& a, int64_t begin, int64_t end);
void gather_block_tables(const GatherBlockTables& a, int64_t begin, int64_t end);

void prepare_prefill_inputs(const PreparePrefillInputs& a, int64_t begin, int64_t end);
void prepare_pos_seq_lens(const PreparePosSeqLens& a, int64_t begin, int64_t end);
void combine_sampled_and_draft_tokens(const CombineSampledAndDraftTokens& a,
                                      int64_t begin, int64_t end);
void get_num_sampled_and_rejected(const GetNumSampledAndRejected& a, int64_t begin,
                                  int64_t end);
void post_update(const PostUpdate& a, int64_t begin, int64_t end);

void gumbel_sample(const GumbelSample& a, int64_t begin, int64_t end);

void prepare_dflash_inputs(const PrepareDflashInputs& a, int64_t begin, int64_t end);
void prepare_draft_inputs(const PrepareDraftInputs& a, int64_t begin, int64_t end);
void gather_context(const GatherContext& a, int64_t begin, int64_t end);

void find_markov_best(const MarkovArgmax& a, int64_t begin, int64_t end);
void choose_markov_draft(const MarkovArgmax& a, int64_t begin, int64_t end);

void rms_norm(const RmsNorm& a, int64_t begin, int64_t end);
void silu_and_mul(const SiluAndMul& a, int64_t begin, int64_t end);
void linear(const Linear& a, int64_t begin, int64_t end);

void expand_idx_mapping(const ExpandIdxMapping& a, int64_t begin, int64_t end);

void compute_local_logits_stats(const ComputeLocalLogitsStats& a, int64_t begin,
                                int64_t end);
void rejection(const Rejection& a, int64_t begin, int64_t end);
void resample(const Resample& a, int64_t begin, int64_t end);
void insert_resampled(const InsertResampled& a, int64_t begin, int64_t end);
void flatten_sampled(const FlattenSampled& a, int64_t begin, int64_t end);

void temperature(const Temperature& a, int64_t begin, int64_t end);
void min_p(const MinP& a, int64_t begin, int64_t end);

void penalties(const Penalties& a, int64_t begin, int64_t end);
void bincount(const BinCount& a, int64_t begin, int64_t end);

void bias(const Bias& a, int64_t begin, int64_t end);
void bad_words(const BadWords& a, int64_t begin, int64_t end);
void apply_grammar_bitmask(const ApplyGrammarBitmask& a, int64_t begin, int64_t end);

void fused_logits(const FusedLogits& a, int64_t begin, int64_t end);
void verify_greedy(const VerifyGreedy& a, int64_t begin, int64_t end);
void verify_drawn(const VerifyDrawn& a, int64_t begin, int64_t end);
void rejection_sample(const RejectionSample& a, int64_t begin, int64_t end);

void topk_log_softmax(const TopkLogSoftmax& a, int64_t begin, int64_t end);
void ranks(const Ranks& a, int64_t begin, int64_t end);
void fill_logprob_token_ids(const FillLogprobTokenIds& a, int64_t begin, int64_t end);
void prompt_logprobs_token_ids(const PromptLogprobsTokenIds& a, int64_t begin,
                               int64_t end);
void num_nans(const NumNans& a, int64_t begin, int64_t end);

void compute_cumulative_log_p(const ComputeCumulativeLogP& a, int64_t begin,
                              int64_t end);
void compute_local_residual_mass(const ComputeLocalResidualMass& a, int64_t begin,
                                 int64_t end);

void post_update_num_computed_tokens(const PostUpdateNumComputedTokens& a,
                                     int64_t begin, int64_t end);
void dcp_local_seq_lens(const DcpLocalSeqLens& a, int64_t begin, int64_t end);
void scatter_num_accepted(const ScatterNumAccepted& a, int64_t begin, int64_t end);

void prepare_rope_positions(const PrepareRopePositions& a, int64_t begin, int64_t end);

void prepare_draft_prefill_inputs(const PrepareDraftPrefillInputs& a, int64_t begin,
                                  int64_t end);
void prepare_decode_inputs(const PrepareDecodeInputs& a, int64_t begin, int64_t end);
void update_draft_inputs(const UpdateDraftInputs& a, int64_t begin, int64_t end);

void preprocess_mamba_align(const PreprocessMambaAlign& a, int64_t begin, int64_t end);
void precopy_mamba_align(const PrecopyMambaAlign& a, int64_t begin, int64_t end);
// The two passes of a launch: the second one, when all programs of the first are done.
void postprocess_mamba_states(const PostprocessMamba& a, int64_t begin, int64_t end);
void postprocess_mamba_accepted(const PostprocessMamba& a);

void plan_step(const PlanStep& a);
void prepare_step(const PrepareStep& a, int64_t begin, int64_t end);
void stage_block_tables(const PrepareBlockTables& a);
void gather_changed_blocks(const PrepareBlockTables& a, int64_t begin, int64_t end);
void store_drafts(const StoreDrafts& a, int64_t begin, int64_t end);
void ngram_draft(const NgramDraft& a, int64_t begin, int64_t end);
// One thread: what one request teaches holds for the next.
void adapt_draft_length(const AdaptDraftLength& a);

void zero_kv_blocks(const ZeroKvBlocks& a, int64_t begin, int64_t end);

}  // namespace vllm_kunlun::host

#endif  // VLLM_KUNLUN_HOST_KERNELS_H_
