# SPDX-License-Identifier: Apache-2.0
"""What ``vllm-kunlun bench step`` does with its options."""

import os
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vllm_kunlun.bench.options import (
    check_seconds,
    check_threads,
    parse_size,
    parse_sizes,
)
from vllm_kunlun.bench.output import check_targets
from vllm_kunlun.bench.plots import check_plot
from vllm_kunlun.files import write_text
from vllm_kunlun.terminal import progress

MOST_DRAFTS = 15
MOST_GROUPS = 4


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    requests: str
    drafts: str
    groups: str
    vocabulary: str
    hidden: str
    sampling: str
    turnover: int
    columns: list[str]
    seconds: float
    threads: int
    model: str | None
    costs: list[str]
    json: Path | None
    markdown: Path | None
    plot: Path | None


def bench_step(console: Console, options: Options) -> bool:
    """Run the benchmark, print and write it; return whether it came to its end.

    Raises:
        ImportError: the kernels cannot be loaded, or there is no matplotlib.
        OSError: a report cannot be written.
        RuntimeError: two columns do not agree.
        ValueError: an option is bad.
    """
    # Before vllm, which takes its time to import.
    requests = parse_sizes("--requests", options.requests)
    drafts = parse_sizes("--drafts", options.drafts, least=0)
    groups = parse_sizes("--groups", options.groups)
    vocabulary = parse_size("--vocabulary", options.vocabulary, least=64)
    hidden = parse_size("--hidden", options.hidden, least=8)
    for name, sizes, most in (
        ("--drafts", drafts, MOST_DRAFTS),
        ("--groups", groups, MOST_GROUPS),
    ):
        if max(sizes) > most:
            raise ValueError(f"{name} must be {most} at most, but is {max(sizes)}.")
    if options.turnover < 0:
        raise ValueError(f"--turnover must be 0 or more, but is {options.turnover}.")
    check_seconds(options.seconds)
    check_threads(options.threads)
    check_targets(options.json, options.markdown, options.plot)
    if options.plot is not None:
        check_plot(options.plot)
    if options.model not in (None, "xpu"):
        raise ValueError(f"--model must be xpu, but is {options.model!r}.")
    if options.costs and options.model is None:
        raise ValueError("--cost is for an estimate: give --model xpu, too.")
    return _run(console, options, requests, drafts, groups, (vocabulary, hidden))


def _run(
    console: Console,
    options: Options,
    requests: list[int],
    drafts: list[int],
    groups: list[int],
    widths: tuple[int, int],
) -> bool:
    # Read when vllm is imported: what each runner logs would bury the tables.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import torch

    from vllm_kunlun import ops

    ops.load()
    from vllm_kunlun.bench.step import report
    from vllm_kunlun.bench.step.columns import choose_columns
    from vllm_kunlun.bench.step.run import Row, measure
    from vllm_kunlun.bench.step.runner import Shape
    from vllm_kunlun.bench.step.workload import SAMPLING
    from vllm_kunlun.bench.step.xpu_model import set_costs

    if options.sampling not in SAMPLING:
        raise ValueError(
            f"--sampling must be one of {', '.join(SAMPLING)}, but is "
            f"{options.sampling!r}."
        )
    columns = choose_columns(options.columns, options.sampling)
    costs = set_costs(options.costs) if options.model is not None else None
    torch.set_num_threads(options.threads)
    shapes = [Shape(r, d, g, *widths) for d in drafts for g in groups for r in requests]
    rows: list[Row] = []
    complete = True
    with progress() as say:
        try:
            for i, shape in enumerate(shapes, start=1):
                say(
                    f"{i} of {len(shapes)}: {shape.requests} requests, {shape.drafts} "
                    f"drafts, KV groups: {shape.groups}"
                )
                rows += measure(
                    columns, shape, options.sampling, options.turnover, options.seconds
                )
        except KeyboardInterrupt:
            complete = False
    for table in report.tables(rows, costs):
        console.print(table, soft_wrap=True)
    if not complete:
        done = len(rows) // len(columns)
        console.print(
            f"Interrupted after {done} of {len(shapes)} shapes; no report was written.",
            style="red",
        )
        return False
    if options.json is not None:
        write_text(options.json, report.as_json(rows, costs))
    if options.markdown is not None:
        write_text(options.markdown, report.as_markdown(rows, costs))
    if options.plot is not None:
        report.plot(rows, options.plot)
    return True
