# SPDX-License-Identifier: Apache-2.0
"""The benchmark of kernels: what it covers, what it checks, what it says."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from vllm_kunlun.bench.kernels import report, timing
from vllm_kunlun.bench.kernels.case import Case, Cell, Size
from vllm_kunlun.bench.kernels.cases import CASES
from vllm_kunlun.bench.kernels.timing import Row, measure
from vllm_kunlun.bench.options import parse_sizes
from vllm_kunlun.cli import app
from vllm_kunlun.kernels import KERNELS

GREEDY = next(case for case in CASES if case.name == "gumbel_sample (greedy)")
BY_NAME = {case.name: case for case in CASES}


def test_every_kernel_is_covered() -> None:
    """The table of ops and the cases name the same kernels."""
    assert {(case.module, case.kernel) for case in CASES} == set(KERNELS)


@pytest.mark.parametrize("requests", [1, 6])
@pytest.mark.parametrize("name", BY_NAME)
def test_baseline_agrees(name: str, requests: int) -> None:
    """Each baseline does ours' work, also where nothing is a multiple of a block."""
    case = BY_NAME[name]
    row = measure(case, Size(requests, 8232 if case.matrices else None), 0)
    assert row.rounds == timing.LEAST_ROUNDS
    assert row.ratio is not None
    assert row.ratio > 0
    assert (row.passes is None) or case.matrices


def test_a_baseline_that_does_other_work_is_found() -> None:
    """Nothing is reported for it."""

    def build(size: Size) -> Cell:
        return replace(GREEDY.build(size), baseline=lambda: None)

    with pytest.raises(RuntimeError, match=r"gumbel_sample \(greedy\) at 2 requests"):
        measure(replace(GREEDY, build=build), Size(2, 64), 0)


def test_changed_memory_is_put_back_before_each_call() -> None:
    """Each call of either side finds what the first one found."""
    memory = torch.zeros(())
    found: list[float] = []

    def step() -> None:
        found.append(float(memory))
        memory.add_(1)

    cell = Cell((1,), {}, step, [memory], restored=[memory])
    timing.time_rounds(cell, step, 0)
    assert found == [0.0] * 2 * (timing.LEAST_ROUNDS + 1)


def test_too_large_a_size_is_skipped() -> None:
    """It says so, instead of filling the memory."""
    row = measure(GREEDY, Size(2**20, 2**20), 0)
    assert row.ratio is None
    assert row.skipped == "needs 8192.0 GiB, more than 4 GiB"


ROWS = [
    Row("op", "one op", 8, 32, 10.0, 25.0, 2.5, 8.0, 1.25, 7),
    Row("op", "one op", 32, 32, 10.0, 55.0, 5.5, 8.0, 1.25, 7),
    Row("op", "one op", 512, 32, skipped="needs too much"),
    Row("other", "a loop", 8, None, 1.0, 1234.0, 1234.0, rounds=9),
]


def test_json() -> None:
    """All figures, and what they depend on."""
    found = json.loads(report.as_json(ROWS))
    assert found["environment"]["threads"] == torch.get_num_threads()
    assert [row["ratio"] for row in found["rows"]] == [2.5, 5.5, None, 1234.0]
    assert found["rows"][2]["skipped"] == "needs too much"


def test_markdown() -> None:
    """A summary, the rows, and what each baseline is."""
    text = report.as_markdown(ROWS, "Figures")
    assert text.startswith("# Figures\n")
    assert "| op | 2.5 | 4 | 1.25 |\n" in text
    assert "| op | 512 | 32 | needs too much | - | - | - | - |\n" in text
    assert "| other | 8 | - | 1 | 1234 | 1234 | - | - |\n" in text
    assert text.count("| op | one op |") == 1


def test_table() -> None:
    """All rows on a terminal."""
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(report.as_table(ROWS))
    text = console.export_text()
    assert "needs too much" in text
    assert "1234" in text


def test_sizes() -> None:
    """Numbers may be in units of 1024."""
    assert parse_sizes("--vocabulary", "8, 32k") == [8, 32768]


def bench(*options: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it says, in one line."""
    result = CliRunner().invoke(app, ["bench", "kernels", *options])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kernel", "min_q"], "There is no kernel 'min_q': choose of apply_"),
        (["--requests", "8,x"], "--requests must be whole numbers from 1 on"),
        (["--requests", "0"], "but is '0'."),
        (["--requests", ""], "--requests must be whole numbers from 1 on"),
        (["--vocabulary", "-3"], "--vocabulary must be whole numbers from 1 on"),
        (["--vocabulary", "k"], "such as 8,32 or 32k, but is 'k'."),
        (["--seconds", "0"], "--seconds must be above 0, but is 0."),
        (["--seconds", "nan"], "--seconds must be above 0, but is nan."),
        (["--threads", "0"], "--threads must be 1 or more, but is 0."),
        (["--json", "/"], "/ is a folder: give the name of a file."),
        (["--markdown", "no/such/a.md"], "is in no existing folder: make the folder"),
    ],
)
def test_bad_option(options: list[str], message: str) -> None:
    """One sentence, before anything is measured."""
    code, said = bench(*options)
    assert code == 1
    assert message in said
    assert said.count(". ") == 0


def test_command(tmp_path: Path) -> None:
    """Both reports are written whole."""
    options = ["--kernel", "min_p", "--kernel", "expand_idx_mapping", "--seconds"]
    options += ["0.01", "--requests", "2", "--vocabulary", "1k"]
    files = [tmp_path / "a.json", tmp_path / "a.md"]
    code, said = bench(*options, "--json", str(files[0]), "--markdown", str(files[1]))
    assert code == 0, said
    rows = json.loads(files[0].read_text())["rows"]
    assert [row["kernel"] for row in rows] == ["expand_idx_mapping", "min_p"]
    assert "| min_p | 2 | 1024 |" in files[1].read_text()
    assert sorted(tmp_path.iterdir()) == files


def test_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured is shown, and an older report stays."""
    calls: list[Case] = []

    def measure(case: Case, size: Size, seconds: float) -> Row:
        calls.append(case)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ROWS[0]

    monkeypatch.setattr("vllm_kunlun.bench.kernels.run.measure", measure)
    target = tmp_path / "a.json"
    target.write_text("older")
    code, said = bench("--json", str(target))
    assert code == 130
    assert "Interrupted after 1 of" in said
    assert target.read_text() == "older"
