# SPDX-License-Identifier: Apache-2.0
"""What ``vllm-kunlun bench kernels`` does with its options."""

import math
from pathlib import Path

import torch
from rich.console import Console

from vllm_kunlun import ops
from vllm_kunlun.bench.kernels import report
from vllm_kunlun.bench.kernels.cases import cases_named
from vllm_kunlun.bench.kernels.run import Plan, run


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
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"--seconds must be above 0, but is {seconds:g}.")
    if threads is not None and threads < 1:
        raise ValueError(f"--threads must be 1 or more, but is {threads}.")
    plan = Plan(
        cases=cases_named(chosen),
        requests=parse_sizes("--requests", requests),
        vocabularies=parse_sizes("--vocabulary", vocabulary),
        seconds=seconds,
    )
    for path in (json, markdown):
        if path is not None:
            report.check_target(path)
    ops.load()
    if threads is not None:
        torch.set_num_threads(threads)
    rows, complete = run(plan, console)
    console.print(report.as_table(rows))
    if not complete:
        console.print(
            f"Interrupted after {len(rows)} of {len(list(plan.cells()))} sizes; no "
            "report was written.",
            style="red",
        )
        return False
    if json is not None:
        report.write(json, report.as_json(rows))
    if markdown is not None:
        report.write(markdown, report.as_markdown(rows, "Kernels against torch"))
    return True


def parse_sizes(option: str, text: str) -> list[int]:
    """Return sizes such as ``8,32`` or ``32k`` as numbers.

    Raises:
        ValueError: one is not a whole number from 1 on.
    """
    sizes = []
    for part in text.split(","):
        digits = part.strip()
        scale = 1024 if digits.endswith("k") else 1
        digits = digits.removesuffix("k")
        if not (digits.isascii() and digits.isdigit() and int(digits) > 0):
            raise ValueError(
                f"{option} must be whole numbers from 1 on, separated by commas, such "
                f"as 8,32 or 32k, but is {text!r}."
            )
        sizes.append(int(digits) * scale)
    return sizes
