# SPDX-License-Identifier: Apache-2.0
"""What cannot be drafted is refused at start, in one sentence."""

from pathlib import Path

import pytest
from conftest import NUM_LAYERS
from engine import dspark, engine

from vllm_kunlun.draft.random_checkpoint import write_random_dspark


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ((1, NUM_LAYERS), r"asks for the hidden states of layer 4 .* layers 0 to 3"),
        ((-1, 2), "asks for the hidden states of layer -1 .* layers 0 to 3"),
        ((2, 2), r"target_layer_ids=\[2, 2\]: list each layer once, in ascending"),
        ((3, 0), r"target_layer_ids=\[3, 0\]: list each layer once, in ascending"),
    ],
    ids=["too deep", "negative", "twice", "out of order"],
)
def test_target_layer_ids(
    model: Path, tmp_path: Path, layers: tuple[int, ...], sentence: str
) -> None:
    """The layer is named before anything is loaded."""
    draft = write_random_dspark(model, tmp_path, target_layer_ids=layers)
    with (
        pytest.raises(ValueError, match=sentence),
        engine(model, speculative_config=dspark(draft)),
    ):
        pass


def test_draft_rows_beyond_the_batch(model: Path, draft: Path) -> None:
    """Both settings are named, and how far to raise one."""
    sentence = (
        "max_num_seqs=16 requests takes 112 rows, more than max_num_batched_tokens=100:"
        " raise max_num_batched_tokens to at least 112"
    )
    with (
        pytest.raises(ValueError, match=sentence),
        engine(
            model,
            speculative_config=dspark(draft, 7),
            max_num_seqs=16,
            max_num_batched_tokens=100,
        ),
    ):
        pass
