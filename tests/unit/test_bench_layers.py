# SPDX-License-Identifier: Apache-2.0
"""The benchmark of layers: its options and its report, without an engine."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vllm_kunlun.bench.layers import command
from vllm_kunlun.bench.layers.products import Product
from vllm_kunlun.bench.layers.run import Row, Steps
from vllm_kunlun.cli import app


def bench(*options: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it printed, in one line."""
    result = CliRunner().invoke(app, ["bench", "layers", *options])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--requests", "0"], "--requests must be whole numbers from 1 on"),
        (["--tokens", "8"], "--tokens must be 16 to 512, but is 8."),
        (["--model", "nowhere"], "nowhere is no model: it has no config.json."),
        (["--json", "no/folder/a.json"], "no/folder/a.json is in no existing folder"),
    ],
)
def test_bad_options(options: list[str], message: str) -> None:
    """Each is refused in a sentence before an engine starts."""
    code, said = bench(*options)
    assert code == 1
    assert message in said


def test_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Medians, their ratio, and what both forms ask of torch."""
    asked: list[Any] = []

    def run(options: dict[str, Any], *rest: Any) -> tuple[list[Row], list[Product]]:
        asked.append((options["dtype"], options["max_num_seqs"], *rest[:2]))
        steps = Steps([9.0, 30.0, 30.0], 1600), Steps([20.0, 20.0, 1.0], 900)
        products = [Product(3072, 576, 8, 1400.0, 350.0)] * (len(asked) == 1)
        return [Row(4, *steps)], products

    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(command, "run", run)
    table, figures = tmp_path / "table.md", tmp_path / "figures.json"
    options = ["--model", str(tmp_path), "--requests", "1,4", "--dtype", "float32"]
    code, said = bench(*options, "--markdown", str(table), "--json", str(figures))
    assert code == 0, said
    assert asked == [("float32", 4, [1, 4], 256)]
    lines = table.read_text().splitlines()
    assert lines[2] == "| 4 | 30 | 20 | 1.5 | 1600 | 900 | 3 |"
    assert lines[3] == ""
    assert lines[6] == "| 3072 x 576 | 8 | 1400 | 350 | 4 |"
    found = json.loads(figures.read_text())
    assert found["rows"][0]["ours"] == {"milliseconds": [20, 20, 1], "calls": 900}
    assert found["products"][0]["ours"] == 350
    assert found["environment"]["torch"]
    assert bench("--model", str(tmp_path), "--quick")[0] == 0
    assert asked[1] == ("bfloat16", 8, [8], 32)
