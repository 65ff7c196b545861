# SPDX-License-Identifier: Apache-2.0
"""Upstream's own Triton kernels as the oracle, run by Triton's interpreter on CPU."""

from oracle.case import (
    GUARD,
    Arena,
    Case,
    assert_same,
    compare,
    opcheck,
    run_both,
    same_bits_or_nan,
)
from oracle.upstream import kernel_of, prepare

__all__ = [
    "GUARD",
    "Arena",
    "Case",
    "assert_same",
    "compare",
    "kernel_of",
    "opcheck",
    "prepare",
    "run_both",
    "same_bits_or_nan",
]
