# SPDX-License-Identifier: Apache-2.0
"""What ``vllm-kunlun bench kernels`` does with its options."""

from pathlib import Path

import torch
from rich.console import Console

from vllm_kunlun import ops
from vllm_kunlun.bench.kernels import report
from vllm_kunlun.bench.kernels.cases import cases_named
from vllm_kunlun.bench.kernels.run import Plan, run
from vllm_kunlun.bench.options import check_seconds, check_threads, parse_sizes
from vllm_kunlun.bench.output import check_targets
from vllm_kunlun.files import write_text


def bench_kernels(
    console: Console,
    *,
    chosen: list[str],
    requests: str,
    vocabulary: str,
    seconds: float,
    threads: int | None,
    json: Path | None,
    markdown: Path | None,
) -> bool:
    """Run the benchmark, print and write it; return whether it came to its end.

    Raises:
        ImportError: the kernels cannot be loaded.
        OSError: a report cannot be written.
        RuntimeError: ours and a baseline do not agree.
        ValueError: an option is bad.
    """
    check_seconds(seconds)
    check_threads(threads)
    plan = Plan(
        cases=cases_named(chosen),
        requests=parse_sizes("--requests", requests),
        vocabularies=parse_sizes("--vocabulary", vocabulary),
        seconds=seconds,
    )
    check_targets(json, markdown)
    ops.load()
    if threads is not None:
        torch.set_num_threads(threads)
    rows, complete = run(plan)
    console.print(report.as_table(rows), soft_wrap=True)
    if not complete:
        console.print(
            f"Interrupted after {len(rows)} of {len(list(plan.cells()))} sizes; no "
            "report was written.",
            style="red",
        )
        return False
    if json is not None:
        write_text(json, report.as_json(rows))
    if markdown is not None:
        write_text(markdown, report.as_markdown(rows, "Kernels against torch"))
    return True
