# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F401 (tests that are imported are tests of this file)
"""The fused ops on the simulated XPU leave what the single kernels leave."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import test_batched_tables
import test_fused_logits
from test_batched_tables import (
    test_only_new_blocks_are_copied,
    test_prepare_block_tables,
)
from test_draft_inputs import Draft, test_gather_context, test_prepare_draft_inputs
from test_fused_logits import (
    test_fused_logits as test_logits,
)
from test_fused_logits import (
    test_min_p_over_many_parts,
    test_rows_that_want_nothing_are_copied,
)
from test_fused_step import test_prepare_step, test_store_drafts
from test_fused_verify import (
    test_rejection_sample,
    test_rejection_sample_without_drafts,
    test_verify_drawn,
    test_verify_greedy,
    test_verify_greedy_takes_the_lowest_of_equal_logits,
)
from test_markov import (
    test_drafts_by_row,
    test_drawn_weights,
    test_first_of_equal_ones,
    test_many_blocks_on_threads,
    test_markov_argmax,
    test_no_requests,
    test_nothing_above_minus_infinity,
    test_products,
)
from test_same_as_host import MACHINES

from vllm_kunlun import backend

# What gives the expected results: on the host, where it launches kernels of ours.
ORACLES: list[tuple[Any, str]] = [
    (test_batched_tables, "run_singly"),
    (test_fused_logits, "run_singly"),
    (Draft, "run_single"),
]


@pytest.fixture(scope="module", params=MACHINES, autouse=True)
def machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every op of a test on the XPU, but for those of its oracle."""

    def on_host(oracle: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            backend.use("host")
            result = oracle(*arguments)
            backend.use(request.param)
            return result

        return run

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ORACLES:
            patch.setattr(owner, name, on_host(getattr(owner, name)))
        backend.use(request.param)
        yield
    backend.use("host")


@pytest.fixture(autouse=True, scope="module")
def launched(machine: None) -> Iterator[None]:
    """See that the simulator was used at all."""
    before = backend.simulated_launches()
    yield
    assert backend.simulated_launches() > before + 100
