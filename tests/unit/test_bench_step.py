# SPDX-License-Identifier: Apache-2.0
"""The step profiler: what it runs, what it counts, what it says."""

import io
import json
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from vllm_kunlun.bench.step import report, run
from vllm_kunlun.bench.step.columns import choose_columns, handles
from vllm_kunlun.bench.step.count import Counts, Recorder
from vllm_kunlun.bench.step.native import NATIVE
from vllm_kunlun.bench.step.null_model import accepted_of
from vllm_kunlun.bench.step.run import Row, measure
from vllm_kunlun.bench.step.runner import Shape
from vllm_kunlun.bench.step.stopwatch import CONTEXT, STAGES, Stopwatch
from vllm_kunlun.bench.step.workload import Workload
from vllm_kunlun.bench.step.xpu_model import Costs, estimate, set_costs
from vllm_kunlun.cli import app
from vllm_kunlun.switches import Switches, current, variable

DEVICE = torch.device("cpu")


def rows_of(shape: Shape, *labels: str, sampling: str = "greedy", turnover: int = 0):  # type: ignore[no-untyped-def]
    """Measure some columns; return their rows by label."""
    columns = choose_columns(list(labels), sampling)
    return {r.column: r for r in measure(columns, shape, sampling, turnover, 0.01)}


@pytest.mark.parametrize(
    ("shape", "sampling", "turnover"),
    [
        (Shape(3, 0), "greedy", 0),
        (Shape(3, 2, groups=2), "greedy", 1),
        (Shape(5, 15, groups=4), "greedy", 0),
        (Shape(2, 3), "seeded", 1),
        (Shape(2, 1), "masked", 0),
    ],
)
def test_columns_give_the_same_tokens(
    shape: Shape, sampling: str, turnover: int
) -> None:
    """Each column does the work of "off" (`measure` compares)."""
    labels = ["on", "torch"] if sampling != "masked" else ["on"]
    rows = rows_of(shape, *labels, sampling=sampling, turnover=turnover)
    assert set(rows) == {"off", *labels}
    for row in rows.values():
        assert row.skipped is None
        assert row.total is not None
        assert row.total > 0
        assert row.steps >= run.LEAST_ROUNDS * run.TURN
        assert sum(row.stages[stage] for stage in STAGES) > 0


def test_each_switch_alone() -> None:
    """It gives the tokens of "off", too; a model's layers are not there."""
    rows = rows_of(Shape(2, 2))
    of_step = [f for f in fields(Switches) if not f.metadata.get("of model")]
    assert len(rows) == 3 + len(of_step)
    assert "LAYER_FUSE" not in rows


def test_counts_of_upstream() -> None:
    """What upstream's V2 asks for, plain and with drafts."""
    plain = rows_of(Shape(4, 0), "off")["off"].counted
    # Positions, last tokens, block tables, slots, choice, numbers, post-update.
    assert plain.launches == 7
    assert plain.syncs == 0
    drafts = rows_of(Shape(4, 3), "off")["off"].counted
    # Without a choice; expansion, four for verification, draft inputs.
    assert drafts.launches == 12
    assert drafts.syncs == 0
    # Request indices, query starts, logits' starts, temperatures, seeds.
    assert drafts.copies == 5
    more = rows_of(Shape(4, 3, groups=3), "off")["off"].counted
    assert more.launches == 12 + 2


def test_counts_of_fused_stages() -> None:
    """Few launches and one copy, however many requests, groups and drafts there are."""
    for shape in (Shape(4, 3), Shape(9, 7, groups=3)):
        counted = rows_of(shape, "on")["on"].counted
        # Inputs, block tables, verification, post-update, draft inputs, context rows.
        assert counted.launches == 6
        assert counted.copies == 1
        assert counted.syncs == 0
    plain = rows_of(Shape(4, 0), "on")["on"].counted
    assert plain.launches == 4
    assert plain.copies == 1
    assert plain.syncs == 0


def test_wide_drafts_project_their_context() -> None:
    """It counts for a stage of its own, which is no part of the control plane."""
    narrow = rows_of(Shape(2, 3), "on")["on"]
    wide = rows_of(Shape(2, 3, hidden=64), "on")["on"]
    assert narrow.counts.get(CONTEXT, Counts()).torch_kernels == 0
    assert wide.counts[CONTEXT].torch_kernels == 2
    assert wide.stages[CONTEXT] > 0
    assert wide.counted.torch_kernels == narrow.counted.torch_kernels


def test_counts_of_torch_code() -> None:
    """It waits for the device, and launches the more the more requests there are."""
    few = rows_of(Shape(2, 2), "torch")["torch"].counted
    many = rows_of(Shape(8, 2), "torch")["torch"].counted
    assert few.launches == many.launches == 0
    assert few.syncs == many.syncs > 10
    assert many.torch_kernels > 2 * few.torch_kernels


def test_other_tokens_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is reported for a column that does other work."""
    key = next(key for key in NATIVE if key[1] == "_gumbel_sample_kernel")

    def other(grid, a):  # type: ignore[no-untyped-def]
        a["local_max_ptr"].zero_()
        a["local_argmax_ptr"].fill_(9)

    monkeypatch.setitem(NATIVE, key, other)
    with pytest.raises(RuntimeError, match="'torch' gives other tokens than 'off'"):
        rows_of(Shape(2, 0), "torch")


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels and switches are the process's own again."""
    monkeypatch.setenv("KUNLUN_HOSTVEC", "0")
    current.cache_clear()
    rows_of(Shape(1, 0), "on", "torch")
    assert not current().hostvec
    assert all("_launcher" not in vars(handle) for handle in handles())
    current.cache_clear()


def test_columns() -> None:
    """A switch alone takes its parts along, a part comes alone."""
    columns = {c.label: c.switches for c in choose_columns([], "greedy")}
    assert all(on for _, on, _ in columns["on"])
    assert not any(on for _, on, _ in columns["off"])
    assert {name for name, on, _ in columns["SPEC_VEC"] if on} == {
        "KUNLUN_SPEC_VEC",
        "KUNLUN_GUMBEL_GREEDY",
        "KUNLUN_DFLASH_VEC",
        "KUNLUN_REJ_XPU",
    }
    for f in fields(Switches):
        if f.metadata.get("of model"):
            continue
        alone = columns[variable(f.name).removeprefix("KUNLUN_")]
        assert getattr(alone, f.name)
        if "of" in f.metadata:
            assert sum(on for _, on, _ in alone) == 1


def test_workload() -> None:
    """Blocks cover what is computed, drafts included; ended requests are replaced."""
    shape = Shape(3, 4, groups=2)
    workload = Workload(shape, "greedy", 1)
    step = workload.first()
    assert step.total_num_scheduled_tokens == 3 * 8
    names = list(step.num_scheduled_tokens)
    before = {r.name: r.computed for r in workload.running}
    step = workload.next([[1, 1, 2]] * 3, names)
    assert step.finished_req_ids == {names[0]}
    assert [new.req_id for new in step.scheduled_new_reqs] == ["request-3"]
    assert step.num_scheduled_tokens == {names[1]: 5, names[2]: 5, "request-3": 8}
    for request in workload.running[:2]:
        assert request.computed == before[request.name] + 8 + 2
        assert request.blocks * 16 >= request.computed + 1 + 4


def counted(code) -> Counts:  # type: ignore[no-untyped-def]
    """Count what a function asks for."""
    stopwatch = Stopwatch()
    stopwatch.start()
    recorder = Recorder(stopwatch)
    with recorder.count():
        code()
    return recorder.by_stage.get("rest", Counts())


def test_copies_are_counted() -> None:
    """Each way of upstream's to send an array is one copy of its bytes."""
    from vllm.utils import torch_utils
    from vllm.v1.worker.gpu.buffer_utils import UvaBackedTensor, async_copy_to_gpu

    array = np.arange(6, dtype=np.int32)
    buffer = torch.zeros(6, dtype=torch.int32)
    for code in (
        lambda: async_copy_to_gpu(array, device=DEVICE),
        lambda: async_copy_to_gpu(array, out=buffer),
        lambda: torch_utils.async_tensor_h2d([1] * 6, device=DEVICE, dtype=torch.int32),
        lambda: torch.tensor([1] * 6, dtype=torch.int32, device=DEVICE),
        lambda: torch.from_numpy(array).to(DEVICE, non_blocking=True),
        lambda: buffer.copy_(torch.zeros_like(buffer), non_blocking=True),
    ):
        found = counted(code)
        assert (found.copies, found.bytes, found.syncs) == (1, 24, 0)
    uva = UvaBackedTensor(6, torch.int32)
    found = counted(uva.copy_to_uva)
    assert (found.copies, found.uva_writes, found.uva_bytes) == (0, 1, 24)
    found = counted(lambda: buffer.to("cpu", non_blocking=True))
    assert (found.copies, found.copies_back, found.syncs) == (0, 1, 0)


@pytest.mark.parametrize(
    ("code", "syncs"),
    [
        (lambda x: x.max().item(), 1),
        (lambda x: int(x[0]), 1),
        (lambda x: bool((x > 0).any()), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: x.cpu().tolist(), 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: x[x > 1], 1),
        (lambda x: torch.repeat_interleave(x), 1),
        (lambda x: x.repeat_interleave(x, output_size=6), 0),
        (lambda x: torch.where(x > 1, x, 0)[x].view(2, 2).sum(), 0),
        (lambda x: torch.from_numpy(np.ones(3)).max().item(), 0),
        (lambda x: torch.zeros(3, device="cpu").tolist(), 0),
        (lambda x: torch.zeros(3).max().item(), 0),
        (lambda x: torch.zeros(3, device=DEVICE).max().item(), 1),
    ],
)
def test_syncs_are_counted(code, syncs: int) -> None:  # type: ignore[no-untyped-def]
    """The host waits where it needs the device's data, not its own."""
    x = torch.tensor([0, 1, 2, 3])
    assert counted(lambda: code(x)).syncs == syncs
    with torch.inference_mode():
        assert counted(lambda: code(x)).syncs == syncs


def test_host_memory_is_known_from_before() -> None:
    """Buffers that were made on the host before the count are the host's in it."""
    stopwatch = Stopwatch()
    recorder = Recorder(stopwatch)
    with recorder.watch():
        buffers = [torch.zeros(3), torch.from_numpy(np.zeros(3))]
        other = torch.zeros(3, device=DEVICE)
    stopwatch.start()
    with recorder.count():
        for x in buffers:
            x.add_(1).sum().item()
        other.sum().item()
    found = recorder.by_stage["rest"]
    assert (found.torch_kernels, found.syncs) == (1, 1)


def test_kernels_are_counted() -> None:
    """Views and new memory are torch ops, but no kernels."""
    x = torch.zeros(4)
    found = counted(lambda: x.view(2, 2)[0].add_(torch.empty_like(x[:2])))
    assert found.torch_kernels == 1
    assert found.dispatches > 3


def test_time_of_a_stage_within_a_stage() -> None:
    """It counts for the inner one alone."""

    class Thing:
        def outer(self) -> None:
            self.inner()

        def inner(self) -> None:
            time.sleep(0.02)

    stopwatch, thing = Stopwatch(), Thing()
    stopwatch.wrap(thing, "outer", "post-update")
    stopwatch.wrap(thing, "inner", "prepare inputs")
    stopwatch.wrap(thing, "absent", "rest")
    stopwatch.start()
    thing.outer()
    stopwatch.stop()
    assert stopwatch.seconds["prepare inputs"] >= 0.02
    assert stopwatch.seconds["post-update"] < 0.01


def test_accepted() -> None:
    """The null models agree on the first half."""
    assert [accepted_of(n) for n in (0, 1, 2, 7)] == [0, 1, 1, 4]


def test_estimate() -> None:
    """Costs add up; bytes go by bandwidth."""
    costs = set_costs(["launch=2", "sync=100", "bandwidth=1"])
    counts = Counts(
        dispatches=3,
        torch_kernels=1,
        launches=4,
        copies=1,
        copies_back=1,
        bytes=500,
        uva_writes=2,
        uva_bytes=500,
        syncs=1,
    )
    assert estimate(counts, costs) == pytest.approx(
        5 * 2 + 3 * costs.dispatch + 2 * costs.copy + 2 * costs.uva + 100 + 1
    )
    assert estimate(Counts(), costs) == 0


ROWS = [
    Row(
        label,
        requests,
        7,
        1,
        128,
        8,
        "greedy",
        total=total,
        off_over_this=100 / total,
        torch_over_this=None,
        stages=dict.fromkeys((*STAGES, "draft steps", "draft context"), total / 8),
        counts={"rest": Counts(launches=3, syncs=1), "draft steps": Counts(syncs=9)},
        steps=10,
    )
    for requests in (8, 32)
    for label, total in (("on", 50.0), ("off", 100.0))
]
SKIPPED = replace(ROWS[0], requests=512, total=None, skipped="needs too much")


def test_reports(tmp_path: Path) -> None:
    """All figures, on a terminal, in Markdown, as JSON and as a plot."""
    rows = [*ROWS, SKIPPED]
    console = Console(width=200, record=True, file=io.StringIO())
    for table in report.tables(rows, Costs()):
        console.print(table)
    text = console.export_text()
    assert "needs too much" in text
    assert "XPU estimate" in text
    markdown = report.as_markdown(rows, Costs())
    assert "| on | 50 | 2 | - | 6.25 |" in markdown
    # The draft steps are no part of the control plane.
    assert "| on | 3 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 | 45 |" in markdown
    assert "| launch | 5 µs | guess" in markdown
    found = json.loads(report.as_json(rows, None))
    assert [row["total"] for row in found["rows"]] == [50, 100, 50, 100, None]
    assert found["rows"][0]["counts"]["draft steps"]["syncs"] == 9
    report.plot(rows, tmp_path / "a.svg")
    assert "requests" in (tmp_path / "a.svg").read_text()


def bench(*options: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it says, in one line."""
    result = CliRunner().invoke(app, ["bench", "step", *options])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--requests", "0"], "--requests must be whole numbers from 1 on"),
        (["--drafts", "16"], "--drafts must be 15 at most, but is 16."),
        (["--drafts", "-1"], "--drafts must be whole numbers from 0 on"),
        (["--groups", "5"], "--groups must be 4 at most, but is 5."),
        (["--vocabulary", "8"], "--vocabulary must be whole numbers from 64 on"),
        (["--vocabulary", "64,128"], "--vocabulary must be one size."),
        (["--hidden", "7"], "--hidden must be whole numbers from 8 on"),
        (["--hidden", "8,16"], "--hidden must be one size."),
        (["--turnover", "-1"], "--turnover must be 0 or more, but is -1."),
        (["--seconds", "nan"], "--seconds must be above 0, but is nan."),
        (["--threads", "0"], "--threads must be 1 or more, but is 0."),
        (["--sampling", "hot"], "--sampling must be one of greedy, seeded, masked"),
        (["--column", "HOST"], "There is no column 'HOST': choose of on, off,"),
        (["--sampling", "masked", "--column", "torch"], "has no torch code for"),
        (["--model", "gpu"], "--model must be xpu, but is 'gpu'."),
        (["--cost", "launch=1"], "--cost is for an estimate: give --model xpu, too."),
        (["--model", "xpu", "--cost", "lanch=1"], "but is 'lanch=1'."),
        (["--model", "xpu", "--cost", "sync=-1"], "but is 'sync=-1'."),
        (["--model", "xpu", "--cost", "bandwidth=0"], "bandwidth must be above 0"),
        (["--json", "/"], "/ is a folder: give the name of a file."),
        (["--plot", "a.txt"], "--plot must end in .pdf, .png, .svg, but is a.txt."),
    ],
)
def test_bad_option(options: list[str], message: str) -> None:
    """One sentence, before anything is measured."""
    code, said = bench(*options)
    assert code == 1
    assert message in said


def test_command(tmp_path: Path) -> None:
    """Both reports are written whole."""
    files = [tmp_path / "a.json", tmp_path / "a.md"]
    options = ["--requests", "2", "--drafts", "1", "--column", "on", "--seconds", "0.1"]
    code, said = bench(*options, "--json", str(files[0]), "--markdown", str(files[1]))
    assert code == 0, said
    rows = json.loads(files[0].read_text())["rows"]
    assert [(row["column"], row["drafts"]) for row in rows] == [("on", 1), ("off", 1)]
    assert "## 2 requests, 1 drafts, KV groups: 1" in files[1].read_text()
    assert sorted(tmp_path.iterdir()) == files


def test_too_large_a_shape_is_skipped() -> None:
    """It says so, instead of filling the memory."""
    rows = rows_of(Shape(512, 15, vocabulary=2**18), "on")
    assert rows["on"].total is None
    assert "GiB, more than 6 GiB" in rows["on"].skipped


def test_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured is shown, and an older report stays."""
    calls: list[Shape] = []

    def measure(columns, shape, sampling, turnover, seconds) -> list[Row]:  # type: ignore[no-untyped-def]
        calls.append(shape)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ROWS[:2]

    monkeypatch.setattr("vllm_kunlun.bench.step.run.measure", measure)
    target = tmp_path / "a.json"
    target.write_text("older")
    code, said = bench("--column", "on", "--json", str(target))
    assert code == 130
    assert "Interrupted after 1 of 12 shapes; no report was written." in said
    assert target.read_text() == "older"
