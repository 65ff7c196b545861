# SPDX-License-Identifier: Apache-2.0
"""Upstream's own Triton kernels as the oracle, run by Triton's interpreter on CPU."""

from oracle.case import Arena, Case, compare, opcheck
from oracle.upstream import kernel_of, prepare

__all__ = ["Arena", "Case", "compare", "kernel_of", "opcheck", "prepare"]
