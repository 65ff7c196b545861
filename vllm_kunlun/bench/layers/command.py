# SPDX-License-Identifier: Apache-2.0
"""What ``vllm-kunlun bench layers`` does with its options."""

from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from vllm_kunlun.bench.layers.products import Product
from vllm_kunlun.bench.layers.run import Row, run
from vllm_kunlun.bench.options import parse_sizes
from vllm_kunlun.bench.output import check_targets, environment, markdown, number
from vllm_kunlun.bench.spec.worker import MAX_MODEL_LEN
from vllm_kunlun.files import check_model, write_json, write_text
from vllm_kunlun.terminal import make_table, progress

HEADINGS = (
    "requests at once",
    "upstream's, ms",
    "ours, ms",
    "upstream's / ours",
    "torch ops, upstream's",
    "ours",
    "steps",
)


OF_PRODUCTS = (
    "weight, out x in",
    "rows",
    "upstream's, us",
    "ours, us",
    "upstream's / ours",
)


Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Headings and lines."""


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    model: Path | None
    requests: str
    tokens: int
    dtype: str
    json: Path | None
    markdown: Path | None


def bench_layers(console: Console, options: Options) -> None:
    """Run the benchmark, print and write it.

    Raises:
        OSError: a report cannot be written.
        RuntimeError: the demo's weights cannot be had, or the model has no layers that
            change.
        ValueError: an option is bad.
    """
    requests = parse_sizes("--requests", options.requests)
    if not 16 <= options.tokens <= MAX_MODEL_LEN // 2:
        raise ValueError(
            f"--tokens must be 16 to {MAX_MODEL_LEN // 2}, but is {options.tokens}."
        )
    check_model(options.model)
    check_targets(options.json, options.markdown)
    from vllm_kunlun.demo.weights import smollm2

    engine = {
        "model": str((options.model or smollm2()).absolute()),
        "dtype": options.dtype,
        "max_num_seqs": max(requests),
        "kv_cache_memory_bytes": 1 << 30,
    }
    with progress() as say:
        rows, products = run(engine, requests, options.tokens, say)
    tables: list[Table] = [(HEADINGS, [cells(row) for row in rows])]
    if products:
        tables.append((OF_PRODUCTS, [cells_of(product) for product in products]))
    for headings, lines in tables:
        console.print(make_table(headings, lines), soft_wrap=True)
    if options.json is not None:
        figures = {
            "environment": environment(),
            "rows": [asdict(row) for row in rows],
            "products": [asdict(product) for product in products],
        }
        write_json(options.json, figures, indent=2)
    if options.markdown is not None:
        parts = ("\n".join(markdown(*table)) + "\n" for table in tables)
        write_text(options.markdown, "\n".join(parts))


def cells(row: Row) -> tuple[str, ...]:
    """Return a line of the table."""
    return (
        str(row.requests),
        number(row.upstream.median),
        number(row.ours.median),
        number(row.ratio),
        str(row.upstream.calls),
        str(row.ours.calls),
        str(len(row.ours.milliseconds)),
    )


def cells_of(product: Product) -> tuple[str, ...]:
    """Return a line of the products' table."""
    return (
        f"{product.columns} x {product.depth}",
        str(product.rows),
        number(product.upstream),
        number(product.ours),
        number(product.ratio),
    )
