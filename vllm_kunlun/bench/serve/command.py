# SPDX-License-Identifier: Apache-2.0
"""What ``vllm-kunlun bench serve`` does with its options."""

import json
import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from vllm_kunlun.bench.options import parse_sizes
from vllm_kunlun.bench.output import check_targets, environment, markdown, number
from vllm_kunlun.bench.serve.run import FIGURES, Plan, Row, run
from vllm_kunlun.bench.ways import RUNNERS
from vllm_kunlun.files import check_model, write_text
from vllm_kunlun.terminal import make_table, progress

MODEL_LEN = 1024


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    model: Path | None
    concurrency: str
    requests: int
    input_len: int
    output_len: int
    rounds: int
    dtype: str
    compiled: bool
    json: Path | None
    markdown: Path | None


def bench_serve(console: Console, options: Options) -> None:
    """Run the benchmark, print and write it.

    Raises:
        OSError: a report cannot be written.
        RuntimeError: a server does not run, or requests fail.
        ValueError: an option is bad.
    """
    concurrency = parse_sizes("--concurrency", options.concurrency)
    for name, value in (
        ("--requests", options.requests),
        ("--input-len", options.input_len),
        ("--output-len", options.output_len),
        ("--rounds", options.rounds),
    ):
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, but is {value}.")
    if options.input_len + options.output_len > MODEL_LEN:
        raise ValueError(
            f"--input-len and --output-len must be {MODEL_LEN} together at most, but "
            f"are {options.input_len + options.output_len}."
        )
    check_model(options.model)
    check_targets(options.json, options.markdown)
    plan = make_plan(options, concurrency)
    # Servers are in sessions of their own: they must not outlive us.
    signal.signal(signal.SIGTERM, _leave)
    with progress() as say:
        rows = run(plan, say)
    console.print(make_table(HEADINGS, map(cells, rows)), soft_wrap=True)
    if options.json is not None:
        write_text(options.json, as_json(rows, plan))
    if options.markdown is not None:
        write_text(options.markdown, as_markdown(rows, plan))


def _leave(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def make_plan(options: Options, concurrency: list[int]) -> Plan:
    """Return what is measured.

    Raises:
        RuntimeError: the demo's weights cannot be had.
    """
    from vllm_kunlun.demo.weights import smollm2

    model = str((options.model or smollm2()).absolute())
    serve = [model, "--dtype", options.dtype, "--max-model-len", str(MODEL_LEN)]
    serve += ["--max-num-seqs", str(max(concurrency)), "--no-enable-prefix-caching"]
    serve += ["--max-num-batched-tokens", "2048"]
    serve += ["--kv-cache-memory-bytes", str(1 << 30)]
    if not options.compiled:
        serve.append("--enforce-eager")
    load = ["--model", model, "--dataset-name", "random", "--ignore-eos"]
    load += ["--random-input-len", str(options.input_len), "--temperature", "0"]
    load += ["--random-output-len", str(options.output_len), "--seed", "0"]
    return Plan(
        ways=RUNNERS,
        serve=serve,
        load=load,
        concurrency=concurrency,
        requests=options.requests,
        rounds=options.rounds,
        compiled=options.compiled,
    )


HEADINGS = ("way", "requests at once", "over V1", *FIGURES.values())


def cells(row: Row) -> tuple[str, ...]:
    """Return a row's cells under `HEADINGS`."""
    figures = (number(row.figures[name]) for name in FIGURES)
    return (row.way, str(row.concurrency), number(row.over_v1), *figures)


def as_json(rows: Iterable[Row], plan: Plan) -> str:
    """Return all that is known."""
    everything = {
        "environment": environment(),
        "serve": plan.serve,
        "load": plan.load,
        "rounds": plan.rounds,
        "compiled": plan.compiled,
        "rows": [asdict(row) for row in rows],
    }
    return json.dumps(everything, indent=2) + "\n"


def as_markdown(rows: Iterable[Row], plan: Plan) -> str:
    """Return the table in Markdown."""
    seen = environment()
    lines = [
        "# V1 and V2 under the same load",
        "",
        f"torch {seen['torch']}, {seen['threads']} threads, {seen['cpu_capability']}; "
        f"{'compiled' if plan.compiled else 'eager'}, {plan.rounds} interleaved "
        "rounds: medians, and medians of the ratios of each round.",
        "",
        *markdown(HEADINGS, map(cells, rows)),
    ]
    return "\n".join(lines) + "\n"
