# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F401 (tests that are imported are tests of this file)
"""The XPU's kernels, simulated, do what the host's do.

These are the tests of tests/kernels, with the host's kernels in the place of upstream's
and the XPU's in the place of the host's. They run on three machines, with the cores in
another order on each.
"""

from collections.abc import Callable, Iterator

import pytest
import test_block_verification
import test_rejection
import torch
from oracle import Case, compare
from oracle.upstream import full_name
from test_autoregressive import (
    test_prepare_decode_inputs,
    test_prepare_draft_prefill_inputs,
    test_update_draft_inputs,
)
from test_block_table import test_compute_slot_mappings, test_gather_block_tables
from test_block_verification import (
    test_compute_cumulative_log_p,
    test_compute_local_residual_mass,
    test_nothing_left_over_accepts,
)
from test_dflash import (
    Inputs,
    test_limit_inside_the_table,
    test_no_requests,
    test_other_rows_at_the_limit,
    test_prepare_dflash_inputs,
)
from test_dflash import Request as DflashRequest
from test_gumbel import (
    test_every_half,
    test_gumbel_sample,
    test_nan_never_wins,
    test_nothing_above_minus_infinity,
)
from test_input_batch import (
    test_combine_sampled_and_draft_tokens,
    test_get_num_sampled_and_rejected,
    test_post_update,
    test_prepare_pos_seq_lens,
    test_prepare_prefill_inputs,
)
from test_kv_zero import test_zero_kv_blocks
from test_logprob import (
    Prompt,
    test_fill_logprob_token_ids,
    test_num_nans,
    test_prompt_logprobs_token_ids,
    test_ranks,
    test_token_outside_the_vocabulary_has_no_probability,
    test_topk_log_softmax,
)
from test_mamba_state import (
    test_postprocess,
    test_precopy,
    test_preprocess,
)
from test_penalties import Count, test_bincount, test_penalties
from test_rejection import (
    test_compute_local_logits_stats,
    test_flatten_sampled,
    test_insert_resampled,
    test_resample,
    test_resample_without_draft_logits_in_place_of_a_placeholder,
    test_stats_of_a_narrower_draft_vocabulary,
    test_stats_of_masked_logits,
    test_stats_of_one_row_for_all,
)
from test_requests import (
    test_dcp_local_seq_lens,
    test_expand_idx_mapping,
    test_post_update_num_computed_tokens,
    test_scatter_num_accepted,
)
from test_rope import Positions, test_prepare_rope_positions
from test_rope import Request as RopeRequest
from test_sampling import test_min_p, test_min_p_of_nan, test_temperature
from test_staged_write import Staged, Write, test_apply_write, test_one_dimension
from test_token_mask import (
    Bias,
    Ids,
    test_apply_grammar_bitmask,
    test_bad_words,
    test_bad_words_with_drafts,
    test_bias,
)

from vllm_kunlun import backend
from vllm_kunlun.kernels import KERNELS, op_name

MACHINES = ["sim:1x1", "sim:1x64:1", "sim:12x64:2"]

# Two files have a test of this name.
test_rejection_of_drafts = test_rejection.test_rejection
test_rejection_of_blocks = test_block_verification.test_rejection


@pytest.fixture(scope="module", params=MACHINES, autouse=True)
def machine(request: pytest.FixtureRequest) -> Iterator[set[str]]:
    """Make "upstream's" mean the host's, and "ours" the simulated XPU's.

    Gives the ops that ran on the XPU.
    """
    run = Case.run_ours
    ran: set[str] = set()

    def run_on_host(case: Case) -> None:
        backend.use("host")
        run(case)

    def run_on_xpu(case: Case) -> None:
        backend.use(request.param)
        launches = backend.simulated_launches()
        run(case)
        if backend.simulated_launches() > launches:
            ran.add(str(op_name(full_name(case.module), case.kernel)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Case, "run_upstream", run_on_host)
        patch.setattr(Case, "run_ours", run_on_xpu)
        yield ran
    backend.use("host")


# Where the host's kernels are right and upstream's are not (docs/deviations.md).
DEVIATIONS: dict[str, Callable[[], Case]] = {
    "queries past the length limit": Inputs(
        (DflashRequest(computed=95, rows=4),), max_model_len=100, columns=25
    ).make,
    "rows past the block table": Inputs(
        (DflashRequest(computed=30, rows=4),), columns=8
    ).make,
    "prompt tokens outside the vocabulary": Count(
        64, ((32, 0),), tuple(range(64, 96))
    ).make,
    "ids outside the vocabulary": Bias(40, 5, (Ids(24, 16, 8),) * 3, outside=2).make,
    "a query that leaves the prefill": Positions(
        (RopeRequest(computed=9, rows=4, prefill=10, delta=5),)
    ).make,
    "a prompt's last token": Prompt(((3, 5),), spare=0).make,
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_deviations(name: str) -> None:
    """The XPU's kernels deviate from upstream's as the host's do."""
    compare(DEVIATIONS[name])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_long_writes_that_overlap(dtype: torch.dtype) -> None:
    """What many cores share out, the last staged write wins everywhere."""
    places = ((0, 3000), (700, 1500), (1900, 900))
    writes = tuple(Write(0, 1, start, length) for start, length in places)
    compare(Staged(2, (3000,), writes, dtype=dtype).make)


def test_no_kernel_was_left_out(machine: set[str]) -> None:
    """The tests above, which pytest runs before this one, launched all of them."""
    assert machine == backend.xpu_kernels() & set(KERNELS.values())
