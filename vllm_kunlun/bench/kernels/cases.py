# SPDX-License-Identifier: Apache-2.0
"""All cases: importing a family enters its cases."""

from vllm_kunlun.bench.kernels import (  # noqa: F401
    block_table,
    cache,
    drafting,
    input_batch,
    logprob,
    rejection,
    requests,
    sampling,
    token_mask,
)
from vllm_kunlun.bench.kernels.case import CASES, Case

__all__ = ["CASES", "cases_named", "names"]


def names() -> list[str]:
    """Return the ops that there are cases for."""
    return sorted({case.op for case in CASES})


def cases_named(chosen: list[str]) -> list[Case]:
    """Return the cases of the chosen ops, or all if none is chosen.

    Raises:
        ValueError: there is no such op.
    """
    for name in chosen:
        if name not in names():
            raise ValueError(
                f"There is no kernel {name!r}: choose of {', '.join(names())}."
            )
    return [case for case in CASES if not chosen or case.op in chosen]
