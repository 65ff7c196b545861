# SPDX-License-Identifier: Apache-2.0
"""What the fused sampling stage works out on the host."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vllm_kunlun.draft.ngram.speculator import NgramSpeculator
from vllm_kunlun.step.sampling import sample
from vllm_kunlun.step.wanted import mask_rows
from vllm_kunlun.switches import ALL_OFF


def batch(*rows: int) -> Any:
    """Return a batch whose requests, "0" and so on, have this many rows of logits."""
    ends = np.cumsum([0, *rows], dtype=np.int32)
    ids = [str(i) for i in range(len(rows))]
    return SimpleNamespace(req_ids=ids, cu_num_logits_np=ends)


def grammars(masks: int, *req_ids: str) -> Any:
    """Return as many masks, for these requests in this order."""
    bitmask = np.arange(masks * 2, dtype=np.int32).reshape(masks, 2)
    return SimpleNamespace(
        structured_output_request_ids=list(req_ids), grammar_bitmask=bitmask
    )


@pytest.mark.parametrize(
    ("rows", "req_ids", "expected"),
    [
        ((1, 1, 1), ("2", "0"), [1, -1, 0]),
        ((3, 1, 2), ("2", "0"), [2, 3, 4, -1, 0, 1]),
        ((2, 3), ("1",), [-1, -1, 0, 1, 2]),
        ((2, 1), ("0", "1"), [0, 1, 2]),
    ],
)
def test_mask_rows(
    rows: tuple[int, ...], req_ids: tuple[str, ...], expected: list[int]
) -> None:
    """Masks come in the grammars' order, a request's rows in that of its drafts."""
    count = sum(rows[int(req_id)] for req_id in req_ids)
    masks, found = mask_rows(batch(*rows), grammars(count, *req_ids))
    assert masks.shape == (count, 2)
    assert found.dtype == np.int32
    assert found.tolist() == expected


def test_mask_rows_refuses_another_number_of_masks() -> None:
    """The scheduler and the runner have to agree on the drafts."""
    with pytest.raises(RuntimeError, match="sent 2 grammar masks for 3 rows"):
        mask_rows(batch(1, 3), grammars(2, "1"))


def test_no_stage_with_all_switches_off() -> None:
    """The runner then samples with upstream's method itself."""
    runner: Any = SimpleNamespace(speculator=None, device=torch.device("cpu"))
    assert sample(runner, ALL_OFF) is None
    # But for drafts whose number must not change what a seed says.
    runner.speculator = NgramSpeculator.__new__(NgramSpeculator)
    assert sample(runner, ALL_OFF) is not None
