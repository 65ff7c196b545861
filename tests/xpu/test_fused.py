# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F401 (tests that are imported are tests of this file)
"""The fused ops on the simulated XPU leave what its single kernels leave."""

from collections.abc import Iterator

import pytest
from test_fused_step import test_prepare_step, test_store_drafts
from test_fused_verify import (
    test_rejection_sample,
    test_rejection_sample_without_drafts,
    test_verify_greedy,
    test_verify_greedy_takes_the_lowest_of_equal_logits,
)

from vllm_kunlun import backend


@pytest.fixture(scope="module", params=["sim:1x64:1", "sim:12x64:2"], autouse=True)
def machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every op of a test on the XPU."""
    backend.use(request.param)
    yield
    backend.use("host")


@pytest.fixture(autouse=True, scope="module")
def launched(machine: None) -> Iterator[None]:
    """See that the simulator was used at all."""
    before = backend.simulated_launches()
    yield
    assert backend.simulated_launches() > before + 100
