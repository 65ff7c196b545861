# SPDX-License-Identifier: Apache-2.0
"""From hidden states to a step's tokens, in one to two launches.

Upstream copies the logits to float32, launches a kernel for each kind of parameter,
and three to six more to sample or verify. Here one launch masks (`fused_logits`) and
one samples (`verify_greedy`, `rejection_sample`), and what no request asks for is left
out, the copy too. What has no fused form (top-k and top-p, logprobs, counting NaN) is
upstream's own code, at its place between the two.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm.v1.worker.gpu.buffer_utils import async_copy_to_gpu
from vllm.v1.worker.gpu.metrics.logits import get_num_nans
from vllm.v1.worker.gpu.model_runner import GPUModelRunner
from vllm.v1.worker.gpu.sample.output import SamplerOutput
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.sample.states import NO_LOGPROBS
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler

from vllm_kunlun.step.verification import Verification, draws
from vllm_kunlun.step.wanted import Wanted, mask_rows, wanted_by
from vllm_kunlun.switches import Switches
from vllm_kunlun.upstream import topk_scores

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import GrammarOutput
    from vllm.v1.outputs import LogprobsTensors
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.model_runner_v2 import ModelRunnerV2

    Sampled = tuple[SamplerOutput, torch.Tensor, torch.Tensor]


BATCHES = 1024
"""Batches whose wishes are remembered."""


def sample(runner: "ModelRunnerV2", switches: Switches) -> "FusedSampling | None":
    """Return the `sample` stage of `runner`, or None where upstream's does it all."""
    fused = switches.mask_fuse or switches.gumbel_greedy or switches.rej_xpu
    if not fused and not draws(runner):
        return None
    return FusedSampling(runner, switches)


class FusedSampling:
    """The `sample` stage of a V2 runner."""

    def __init__(self, runner: "ModelRunnerV2", switches: Switches) -> None:
        self.runner = runner
        self.switches = switches
        # Of model states with samplers of their own nothing is known.
        self._known = (Sampler, RejectionSampler, type(None))
        self._verify = Verification(runner, switches)
        self._wanted: dict[bytes, Wanted] = {}

    def forget(self) -> None:
        """Forget what batches want: rows of the request state get new requests."""
        self._wanted.clear()

    def wanted(self, sampler: Sampler, requests: np.ndarray) -> Wanted:
        """Return what the requests with these state rows want.

        Decodes come in the same batch step after step, and a look at a dozen arrays
        takes as long as a launch.
        """
        key = requests.tobytes()
        found = self._wanted.get(key)
        if found is None:
            if len(self._wanted) >= BATCHES:
                self._wanted.clear()
            found = self._wanted[key] = wanted_by(sampler, requests)
        return found

    def __call__(
        self,
        hidden_states: torch.Tensor,
        input_batch: "InputBatch",
        grammar_output: "GrammarOutput | None",
    ) -> "Sampled":
        """Do what `GPUModelRunner.sample` does."""
        runner = self.runner
        sampler, verifier = runner.sampler, runner.rejection_sampler
        has_drafts = input_batch.num_draft_tokens > 0
        if (
            type(sampler) not in self._known
            or type(verifier) not in self._known
            or (has_drafts and verifier is None)
        ):
            upstreams: Sampled = GPUModelRunner.sample(
                runner, hidden_states, input_batch, grammar_output
            )
            return upstreams
        assert sampler is not None
        indices = input_batch.logits_indices
        if indices.shape[0] == input_batch.num_tokens:
            # Every token has logits, and they are in order.
            rows = hidden_states[: input_batch.num_tokens]
        else:
            rows = hidden_states[indices]
        logits = runner.model.compute_logits(rows)
        if not has_drafts:
            verifier = None
        wanted = self.wanted(sampler, input_batch.idx_mapping_np)
        output = self.output(
            logits, input_batch, grammar_output, sampler, verifier, wanted
        )
        assert output.num_sampled is not None
        assert output.num_rejected is not None
        return output, output.num_sampled, output.num_rejected

    def output(
        self,
        logits: torch.Tensor,
        input_batch: "InputBatch",
        grammar_output: "GrammarOutput | None",
        sampler: Sampler,
        verifier: RejectionSampler | None,
        wanted: Wanted,
    ) -> SamplerOutput:
        """Return the tokens of a step; `verifier` is None without drafts.

        Args:
            logits: [num_logits, vocab_size], of the model's dtype; changed in place.
            input_batch: the batch.
            grammar_output: grammar masks, if any.
            sampler: the runner's.
            verifier: the runner's, where the batch has drafts.
            wanted: what the requests of the batch want.
        """
        reports = wanted.logprobs != NO_LOGPROBS or wanted.token_ids > 0
        keeps_raw = reports and sampler.logprobs_mode.startswith("raw_")
        masks = None
        if grammar_output is not None and grammar_output.structured_output_request_ids:
            # Raw logprobs and counts of NaN are those of masked logits.
            if self.switches.mask_fuse and not keeps_raw and not sampler.compute_nans:
                masks = mask_rows(input_batch, grammar_output)
            else:
                worker = self.runner.structured_outputs_worker
                assert worker is not None
                worker.apply_grammar_bitmask(
                    logits,
                    input_batch,
                    grammar_output.structured_output_request_ids,
                    grammar_output.grammar_bitmask,
                )
        if sampler.use_flashinfer and wanted.top and verifier is None and masks is None:
            return sampler(logits, input_batch)

        num_nans = get_num_nans(logits) if sampler.compute_nans else None
        greedy = wanted.greedy and self.switches.gumbel_greedy
        if verifier is not None and verifier.synthetic_conditional_rates is not None:
            greedy = False
        processed = self.processed_logits(
            logits,
            input_batch,
            sampler,
            wanted,
            masks,
            keeps_raw=keeps_raw,
            as_float=(reports and not keeps_raw)
            or wanted.top
            or not (greedy or self.switches.rej_xpu),
        )
        sampled, num_sampled, num_rejected = self._verify(
            processed, input_batch, sampler, verifier, greedy=greedy
        )
        logprobs = None
        if reports:
            logprobs = self.logprobs(
                logits if keeps_raw else processed,
                input_batch,
                sampler,
                verifier,
                wanted,
                sampled,
                num_sampled,
            )
        return SamplerOutput(
            sampled_token_ids=sampled,
            logprobs_tensors=logprobs,
            num_nans=num_nans,
            num_sampled=num_sampled,
            num_rejected=num_rejected,
        )

    def processed_logits(
        self,
        logits: torch.Tensor,
        input_batch: "InputBatch",
        sampler: Sampler,
        wanted: Wanted,
        masks: tuple[np.ndarray, np.ndarray] | None,
        *,
        keeps_raw: bool,
        as_float: bool,
    ) -> torch.Tensor:
        """Return the logits to sample from, float32 unless nothing changes them.

        Args:
            logits: [num_logits, vocab_size].
            input_batch: the batch.
            sampler: the runner's.
            wanted: what the requests of the batch want.
            masks: of grammars, as `mask_rows` returns them.
            keeps_raw: `logits` must not change.
            as_float: the result has to be float32.
        """
        is_float = logits.dtype == torch.float32
        if masks is not None or (wanted.masks and self.switches.mask_fuse):
            in_place = is_float and not keeps_raw
            out = logits
            if not in_place:
                out = torch.empty_like(logits, dtype=torch.float32)
            self.fused_logits(
                out,
                None if in_place else logits,
                input_batch,
                sampler,
                wanted,
                masks,
            )
        elif wanted.masks:
            out = sampler.apply_sampling_params(
                logits,
                input_batch.expanded_idx_mapping,
                input_batch.idx_mapping_np,
                input_batch.positions[input_batch.logits_indices],
                input_batch.input_ids[input_batch.logits_indices],
                input_batch.expanded_local_pos,
                skip_top_k_top_p=True,
            )
        elif (as_float and not is_float) or (wanted.top and keeps_raw):
            out = torch.empty_like(logits, dtype=torch.float32).copy_(logits)
        else:
            out = logits
        if not wanted.top:
            return out
        return sampler.sampling_states.apply_top_k_top_p(
            out, input_batch.expanded_idx_mapping, input_batch.idx_mapping_np
        )

    def fused_logits(
        self,
        out: torch.Tensor,
        logits: torch.Tensor | None,
        input_batch: "InputBatch",
        sampler: Sampler,
        wanted: Wanted,
        masks: tuple[np.ndarray, np.ndarray] | None,
    ) -> None:
        """Launch `fused_logits`: write what becomes of `logits`, or of `out`."""
        states: dict[str, Any] = {}
        if masks is not None:
            bitmask, rows = (self._on_device(array) for array in masks)
            states |= {"bitmask": bitmask, "bitmask_rows": rows}
        if wanted.bias:
            b = sampler.logit_bias_state
            states |= {
                "num_allowed_token_ids": b.num_allowed_token_ids.gpu,
                "allowed_token_ids": b.allowed_token_ids.gpu,
                "num_logit_bias": b.num_logit_bias.gpu,
                "bias_token_ids": b.logit_bias_token_ids.gpu,
                "logit_bias": b.logit_bias.gpu,
                "min_lens": b.min_lens.gpu,
                "num_stop_token_ids": b.num_stop_token_ids.gpu,
                "stop_token_ids": b.stop_token_ids.gpu,
            }
        if wanted.penalties:
            p = sampler.penalties_state
            states |= {
                "repetition_penalty": p.repetition_penalty.gpu,
                "frequency_penalty": p.frequency_penalty.gpu,
                "presence_penalty": p.presence_penalty.gpu,
                "prompt_bin_mask": p.prompt_bin_mask,
                "output_bin_counts": p.output_bin_counts,
            }
        if wanted.bad_words:
            w = sampler.bad_words_state
            requests = sampler.req_states
            states |= {
                "bad_word_token_ids": w.bad_word_token_ids.gpu,
                "bad_word_offsets": w.bad_word_offsets.gpu,
                "num_bad_words": w.num_bad_words.gpu,
                "all_token_ids": requests.all_token_ids.gpu,
                "prompt_len": requests.prompt_len.gpu,
                "total_len": requests.total_len.gpu,
            }
        torch.ops.vllm_kunlun.fused_logits(
            out,
            logits,
            input_batch.expanded_idx_mapping,
            input_batch.expanded_local_pos,
            input_batch.logits_indices,
            input_batch.input_ids,
            input_batch.positions,
            temperature=sampler.sampling_states.temperature.gpu,
            min_p=sampler.sampling_states.min_p.gpu,
            **states,
        )

    def _on_device(self, array: np.ndarray) -> torch.Tensor:
        device = self.runner.device
        if device.type == "cpu":
            return torch.from_numpy(array)
        return async_copy_to_gpu(array, device=device)

    def logprobs(
        self,
        logits: torch.Tensor,
        input_batch: "InputBatch",
        sampler: Sampler,
        verifier: RejectionSampler | None,
        wanted: Wanted,
        sampled: torch.Tensor,
        num_sampled: torch.Tensor,
    ) -> "LogprobsTensors | None":
        """Return the logprobs that the batch wants, as upstream computes them."""
        if verifier is not None:
            # Upstream takes the counts before requests in the middle of their prefill
            # are set to 0; these have a token too.
            return verifier._get_logprobs_tensors(
                input_batch, sampled, num_sampled.clamp(min=1), logits
            )
        return topk_scores(sampler)(
            logits,
            max(wanted.logprobs, 0),
            sampled.view(-1),
            None,
            logprob_token_ids_state=sampler.logprob_token_ids_state,
            expanded_idx_mapping=input_batch.expanded_idx_mapping,
            max_per_req_token_ids=wanted.token_ids,
        )
