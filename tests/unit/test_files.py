# SPDX-License-Identifier: Apache-2.0
"""Files that are there whole or not at all."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vllm_kunlun.files import write_text, write_whole


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """What fails half-way leaves the file as it was, and nothing beside it."""
    path = tmp_path / "folder" / "a.txt"
    write_text(path, "first")

    def fail(scratch: Path) -> None:
        scratch.write_text("sec")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        write_whole(path, fail)
    assert path.read_text() == "first"
    write_text(path, "second")
    assert path.read_text() == "second"
    assert list(path.parent.iterdir()) == [path]


def test_others_can_read_what_safetensors_writes(tmp_path: Path) -> None:
    """A server may run as somebody else than the trainer."""
    usual, weights = tmp_path / "usual", tmp_path / "weights"
    usual.touch()
    write_whole(weights, lambda scratch: save_file({"a": torch.ones(1)}, scratch))
    assert weights.stat().st_mode == usual.stat().st_mode
