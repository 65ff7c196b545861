// SPDX-License-Identifier: Apache-2.0
// From logits to a step's tokens and their counts, in one launch; without drafts too.
// The terms are those of rejection.h.
#ifndef VLLM_KUNLUN_CONTRACTS_VERIFY_H_
#define VLLM_KUNLUN_CONTRACTS_VERIFY_H_

#include "contracts/block_verification.h"
#include "contracts/input_batch.h"
#include "contracts/rejection.h"
#include "contracts/types.h"

namespace vllm_kunlun {

// Grid (num_reqs). For a batch in which every request is greedy.
//
// The argmax of a row is the lowest token of its largest logit; NaN is never the
// largest, and where nothing is above -inf it is token 0. A request's drafts are
// accepted up to the first that is not the argmax of the row before it.
// Written: sampled[i, k], the argmax of the rows up to the first rejected draft's or
// the bonus row; counts.num_sampled[i], how many these are, and counts.num_rejected[i],
// both as get_num_sampled_and_rejected leaves them.
struct VerifyGreedy {
  Rows<int64_t> sampled;  // [num_reqs, >= rows of a request]
  TargetLogits logits;
  int64_t vocab_size;
  IntList draft_sampled;            // [num_logits]
  GetNumSampledAndRejected counts;  // cu_num_logits too
};

// Grid (num_reqs). For drafts that are certain: known without probabilities.
//
// Each row's token is drawn as gumbel_sample draws it, with the row's own seed and
// position, whatever the drafts are; a request's drafts are accepted up to the first
// that is not the token drawn in the row before it. So a draft is accepted with the
// target's chance of it, as by rejection sampling, and what is said is what would be
// said without drafts.
// Written: as by VerifyGreedy, with drawn tokens for argmaxes.
struct VerifyDrawn {
  VerifyGreedy verify;
  const float* temp;     // [max_num_reqs]; the logits have been divided by it
  const int64_t* seeds;  // [max_num_reqs]
  IntList pos;           // [num_logits]
  bool use_fp64;
};

// Grid (num_reqs).
//
// What upstream's rejection_sample and get_num_sampled_and_rejected do, to the bit: the
// launches of the fields in their order. Their memory between these launches is
// workspace. A batch without drafts has num_speculative_steps 0, and is sampled as
// gumbel_sample does it.
// Written: rejection.sampled, as insert_resampled leaves it; the counts; workspace.
struct RejectionSample {
  ComputeLocalLogitsStats stats;
  bool use_block_verification;
  ComputeCumulativeLogP cumulative_log_p;        // block verification
  ComputeLocalResidualMass local_residual_mass;  // block verification, draft logits
  Rejection rejection;
  Resample resample;
  InsertResampled insert_resampled;
  GetNumSampledAndRejected counts;
};

}  // namespace vllm_kunlun

#endif  // VLLM_KUNLUN_CONTRACTS_VERIFY_H_
