# SPDX-License-Identifier: Apache-2.0
"""From logits that are ready to sample from to a step's tokens and their counts."""

from typing import TYPE_CHECKING

import torch
from vllm.v1.worker.gpu.input_batch import get_num_sampled_and_rejected
from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

from vllm_kunlun.draft.ngram.speculator import NgramSpeculator
from vllm_kunlun.switches import Switches

if TYPE_CHECKING:
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.model_runner_v2 import ModelRunnerV2

    # Tokens, int64 [num_reqs, steps + 1], how many of them count, and how many drafts
    # do not, int32 [num_reqs].
    Verified = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def draws(runner: "ModelRunnerV2") -> bool:
    """Return whether tokens are drawn as without drafts, and these only compared.

    The distribution, and the chance that a draft is accepted, are those of upstream's
    rejection sampling (`standard`). It is so for drafts whose number depends on load
    and time, which must not change what is said.
    """
    return isinstance(runner.speculator, NgramSpeculator)


class Verification:
    """Samples a batch, with drafts or without, in one launch where switches say so."""

    def __init__(self, runner: "ModelRunnerV2", switches: Switches) -> None:
        self.runner = runner
        self.switches = switches
        self._draws = draws(runner)
        self._workspace = torch.empty(0, dtype=torch.uint8, device=runner.device)

    def __call__(
        self,
        logits: torch.Tensor,
        input_batch: "InputBatch",
        sampler: Sampler,
        verifier: RejectionSampler | None,
        *,
        greedy: bool,
    ) -> "Verified":
        """Return the tokens of a step, and the counts.

        Args:
            logits: [num_logits, vocab_size], after all that changes them.
            input_batch: the batch.
            sampler: the runner's.
            verifier: the runner's, where the batch has drafts.
            greedy: every request is, and they have their own launch.
        """
        is_standard = (
            verifier is not None
            and verifier.synthetic_conditional_rates is None
            and not verifier.use_block_verification
        )
        if greedy:
            verify = self.verify_greedy
        elif self._draws and is_standard:
            verify = self.verify_drawn if self.switches.rej_xpu else self.draw
        elif self.switches.rej_xpu:
            verify = self.rejection_sample
        else:
            verify = self.upstreams_sample
        return verify(logits, input_batch, sampler, verifier)

    def verify_greedy(
        self,
        logits: torch.Tensor,
        input_batch: "InputBatch",
        sampler: Sampler,
        verifier: RejectionSampler | None,
    ) -> "Verified":
        """Launch `verify_greedy`; return tokens and counts as `outputs` has them."""
        drafts = self._draft_logits(verifier)
        vocab_size = logits.shape[1]
        if drafts is not None:
            vocab_size = min(vocab_size, drafts.shape[-1])
        outputs = self._outputs(input_batch, verifier)
        torch.ops.vllm_kunlun.verify_greedy.default(
            *outputs,
            logits,
            input_batch.input_ids,
            input_batch.logits_indices,
            input_batch.cu_num_logits,
            input_batch.idx_mapping,
            input_batch.seq_lens,
            sampler.req_states.prefill_len.gpu,
            vocab_size,
        )
        return outputs

    def verify_drawn(
        self,
        logits: torch.Tensor,
        input_batch: "InputBatch",
        sampler: Sampler,
        verifier: RejectionSampler | None,
    ) -> "Verified":
        """Launch `verify_drawn`; return tokens and counts."""
        outputs = self._outputs(input_batch, verifier)
        torch.ops.vllm_kunlun.verify_drawn(
            *outputs,
            logits,
            input_batch.input_ids,
            input_batch.positions,
            input_batch.logits_indices,
            input_batch.cu_num_logits,
            input_batch.idx_mapping,
            input_batch.seq_lens,
            sampler.req_states.prefill_len.gpu,
            sampler.sampling_states.temperature.gpu,
            sampler.sampling_states.seeds.gpu,
            logits.shape[1],
            sampler.use_fp64_gumbel,
        )
        return outputs

    def draw(
        self,
        logits: torch.Tensor,
        input_batch: "InputBatch",
        sampler: Sampler,
        verifier: RejectionSampler | None,
    ) -> "Verified":
        """Do with single launches what `verify_drawn` does."""
        assert verifier is not None
        drawn = self.gumbel_sample(logits, input_batch, sampler)
        drafts = input_batch.input_ids[input_batch.logits_indices]
        starts, ends = input_batch.cu_num_logits[:-1], input_batch.cu_num_logits[1:]
        places = torch.arange(verifier.num_speculative_steps + 1, device=drawn.device)
        rows = starts[:, None] + places
        is_row = rows < ends[:, None]
        rows = rows.clamp(max=drawn.shape[0] - 1)
        sampled = drawn[rows]
        right = (sampled[:, :-1] == drafts[rows[:, 1:]]) & is_row[:, 1:]
        num_sampled = 1 + right.int().cumprod(dim=1).sum(dim=1, dtype=torch.int32)
        return sampled, *self.counts(num_sampled, input_batch, sampler)

    def rejection_sample(
        self,
        logits: torch.Tensor,
        input_batch: "InputBatch",
        sampler: Sampler,
        verifier: RejectionSampler | None,
    ) -> "Verified":
        """Launch `rejection_sample`; return tokens and counts."""
        ops = torch.ops.vllm_kunlun
        outputs = self._outputs(input_batch, verifier)
        needed = ops.rejection_sample_workspace(
            logits.shape[0], input_batch.num_reqs, logits.shape[1]
        )
        if self._workspace.numel() < needed:
            self._workspace = self._workspace.new_empty(needed)
        ops.rejection_sample(
            *outputs,
            self._workspace,
            logits,
            self._draft_logits(verifier),
            input_batch.input_ids,
            input_batch.positions,
            input_batch.logits_indices,
            input_batch.cu_num_logits,
            input_batch.idx_mapping,
            input_batch.expanded_idx_mapping,
            input_batch.expanded_local_pos,
            input_batch.seq_lens,
            sampler.req_states.prefill_len.gpu,
            sampler.sampling_states.temperature.gpu,
            sampler.sampling_states.seeds.gpu,
            verifier.synthetic_conditional_rates if verifier is not None else None,
            verifier.num_speculative_steps if verifier is not None else 0,
            sampler.use_fp64_gumbel,
            verifier is not None and verifier.use_block_verification,
        )
        return outputs

    def _draft_logits(self, verifier: RejectionSampler | None) -> torch.Tensor | None:
        if verifier is None:
            return None
        assert self.runner.speculator is not None
        return self.runner.speculator.draft_logits

    def _outputs(
        self, input_batch: "InputBatch", verifier: RejectionSampler | None
    ) -> "Verified":
        """Make tokens int64 [num_reqs, steps + 1], counts int32 [num_reqs], blank."""
        # New ones in each step: the last step's may still be on their way to the host.
        steps = verifier.num_speculative_steps if verifier is not None else 0
        n = input_batch.num_reqs
        counts = input_batch.seq_lens.new_empty(2, n)
        tokens = counts.new_empty(n, steps + 1, dtype=torch.int64)
        return tokens, *counts.unbind()

    def upstreams_sample(
        self,
        logits: torch.Tensor,
        input_batch: "InputBatch",
        sampler: Sampler,
        verifier: RejectionSampler | None,
    ) -> "Verified":
        """Sample as upstream does after all that changes logits."""
        states = sampler.sampling_states
        if verifier is None:
            sampled = self.gumbel_sample(logits, input_batch, sampler).view(-1, 1)
            num_sampled = input_batch.seq_lens.new_ones(input_batch.num_reqs)
        else:
            sampled, num_sampled = rejection_sample(
                logits,
                self._draft_logits(verifier),
                input_batch.input_ids[input_batch.logits_indices],
                input_batch.cu_num_logits,
                input_batch.positions[input_batch.logits_indices],
                input_batch.idx_mapping,
                input_batch.expanded_idx_mapping,
                input_batch.expanded_local_pos,
                states.temperature.gpu,
                states.seeds.gpu,
                verifier.num_speculative_steps,
                verifier.synthetic_conditional_rates,
                use_fp64=sampler.use_fp64_gumbel,
                use_block_verification=verifier.use_block_verification,
            )
        return sampled, *self.counts(num_sampled, input_batch, sampler)

    @staticmethod
    def gumbel_sample(
        logits: torch.Tensor, input_batch: "InputBatch", sampler: Sampler
    ) -> torch.Tensor:
        """Draw the token of each row of logits, [num_logits], int64."""
        states = sampler.sampling_states
        drawn: torch.Tensor = gumbel_sample(
            logits,
            input_batch.expanded_idx_mapping,
            states.temperature.gpu,
            states.seeds.gpu,
            input_batch.positions[input_batch.logits_indices],
            apply_temperature=False,
            use_fp64=sampler.use_fp64_gumbel,
        )
        return drawn

    @staticmethod
    def counts(
        num_sampled: torch.Tensor, input_batch: "InputBatch", sampler: Sampler
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return how many tokens of each request count, and how many drafts do not."""
        counts: tuple[torch.Tensor, torch.Tensor] = get_num_sampled_and_rejected(
            num_sampled,
            input_batch.seq_lens,
            input_batch.cu_num_logits,
            input_batch.idx_mapping,
            sampler.req_states.prefill_len.gpu,
        )
        return counts
