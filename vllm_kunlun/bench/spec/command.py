# SPDX-License-Identifier: Apache-2.0
"""What ``vllm-kunlun bench spec`` does with its options."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vllm_kunlun.bench.options import parse_sizes
from vllm_kunlun.bench.output import check_targets
from vllm_kunlun.bench.plots import check_plot
from vllm_kunlun.bench.spec import report
from vllm_kunlun.bench.spec.prompts import KINDS
from vllm_kunlun.bench.spec.run import Plan, run
from vllm_kunlun.bench.ways import RUNNERS, Way, checkpoint_config, speculating
from vllm_kunlun.files import check_model, write_text
from vllm_kunlun.terminal import progress

MOST_TOKENS = 512


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    model: Path | None
    draft: Path | None
    ways: list[str]
    texts: list[str]
    concurrency: str
    drafts: int
    lookup: str
    max_tokens: int
    requests: int
    rounds: int
    rates: str
    dtype: str
    compiled: bool
    json: Path | None
    markdown: Path | None
    plot: Path | None


def bench_spec(console: Console, options: Options) -> None:
    """Run the benchmark, print and write it.

    Raises:
        ImportError: there is no matplotlib.
        OSError: a report cannot be written.
        RuntimeError: an engine does not run.
        ValueError: an option is bad.
    """
    concurrency = parse_sizes("--concurrency", options.concurrency)
    lookup = parse_sizes("--lookup", options.lookup)
    if len(lookup) != 2 or lookup[0] > lookup[1]:
        raise ValueError(
            "--lookup must be the shortest and the longest match, such as 2,4, but is "
            f"{options.lookup!r}."
        )
    rates = parse_rates(options.rates)
    for name, value, least, most in (
        ("--drafts", options.drafts, 1, 15),
        ("--tokens", options.max_tokens, 2, MOST_TOKENS),
        ("--requests", options.requests, 1, 1000),
        ("--rounds", options.rounds, 1, 1000),
    ):
        if not least <= value <= most:
            raise ValueError(f"{name} must be {least} to {most}, but is {value}.")
    kinds = chosen("--text", options.texts, KINDS)
    draft = options.draft or Path()
    labels = [w.label for w in speculating(draft, options.drafts, (1, 1))]
    names = chosen("--way", options.ways, labels)
    for path in (options.model, options.draft):
        check_model(path)
    check_targets(options.json, options.markdown, options.plot)
    if options.plot is not None:
        check_plot(options.plot)

    model, draft = models(options.model, options.draft)
    ways = speculating(draft, options.drafts, (lookup[0], lookup[1]))
    plan = Plan(
        ways=[way for way in ways if way.label in names],
        kinds=kinds,
        concurrency=concurrency,
        requests=options.requests,
        max_tokens=options.max_tokens,
        rounds=options.rounds,
        options={
            "model": str(model),
            "dtype": options.dtype,
            "enforce_eager": not options.compiled,
            "max_num_seqs": max(concurrency),
            "kv_cache_memory_bytes": 1 << 29,
        },
        compiled=options.compiled,
        synthetic=with_forced_acceptance(draft, options.drafts) if rates else (),
        rates=rates,
    )
    with progress() as say:
        found = run(plan, say)
    for table in report.tables(found):
        console.print(table, soft_wrap=True)
    for way, reason in found.failed.items():
        console.print(
            f"{way} is missing: {reason}", style="yellow", soft_wrap=True, markup=False
        )
    if options.json is not None:
        write_text(options.json, report.as_json(found, plan))
    if options.markdown is not None:
        write_text(options.markdown, report.as_markdown(found, plan))
    if options.plot is not None:
        report.plot(found, options.plot)


def chosen(option: str, names: list[str], known: Sequence[str]) -> list[str]:
    """Return the names given, or all.

    Raises:
        ValueError: one is not known.
    """
    for name in names:
        if name not in known:
            raise ValueError(
                f"{option} must be one of {', '.join(known)}, but is {name!r}."
            )
    return [name for name in known if not names or name in names]


def parse_rates(text: str) -> list[float]:
    """Return the acceptances to force; none for an empty text.

    Raises:
        ValueError: one is no number from 0 to 1.
    """
    rates = []
    for part in text.split(",") if text else []:
        try:
            rate = float(part)
        except ValueError:
            rate = -1.0
        if not 0 <= rate <= 1:
            raise ValueError(
                "--acceptance must be numbers from 0 to 1, separated by commas, but is "
                f"{text!r}."
            )
        rates.append(rate)
    return rates


def models(model: Path | None, draft: Path | None) -> tuple[Path, Path]:
    """Return the target and its draft.

    Where none is given the target is the demo's with its draft; another target gets one
    of random weights.

    Raises:
        RuntimeError: the demo's weights cannot be had.
    """
    from vllm_kunlun.demo.weights import DRAFT, cache_folder, smollm2
    from vllm_kunlun.draft.random_checkpoint import write_random_dspark

    if model is None:
        return smollm2().absolute(), (draft or DRAFT).absolute()
    if draft is None:
        draft = write_random_dspark(
            model,
            cache_folder() / "models" / f"random-dspark-{model.name}",
            target_layer_ids=(1, 14, 27),
            num_layers=2,
        )
    return model.absolute(), draft.absolute()


def with_forced_acceptance(draft: Path, number: int) -> list[Way]:
    """Return V2 with a DSpark draft whose acceptance can be set, off and on."""
    speculative = checkpoint_config(draft, number)
    number = speculative["num_speculative_tokens"]
    speculative |= {
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": [0.5] * number,
    }
    return [
        Way(f"{way.label}, forced", True, way.switches, speculative)
        for way in RUNNERS
        if way.use_v2
    ]
