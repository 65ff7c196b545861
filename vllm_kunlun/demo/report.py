# SPDX-License-Identifier: Apache-2.0
"""Generate with V1, V2 and both kinds of dspark, show all, insist that they agree."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vllm_kunlun.demo.generate import QUESTIONS, Generation
from vllm_kunlun.demo.weights import DRAFT, cache_folder, smollm2
from vllm_kunlun.terminal import make_table


@dataclass(frozen=True)
class Way:
    """One way to generate: a label, the runner's switch, how many drafts of what."""

    label: str
    use_v2: str
    num_draft_tokens: int = 0
    draft: Path | None = None


def run_demo(console: Console, *, offline: bool = False) -> bool:
    """Run the demo and return whether all ways gave the same tokens."""
    started = time.perf_counter()
    model = smollm2(offline=offline)
    console.print(f"Weights: ready in {time.perf_counter() - started:.0f} s")
    ways = [
        Way("V1", "0"),
        Way("V2", "1"),
        Way("V2 + dspark n-gram", "1", 7),
        Way("V2 + DSpark draft", "1", 5, DRAFT),
    ]
    results: dict[str, Generation] = {}
    for way in ways:
        started = time.perf_counter()
        results[way.label] = _run(way, model)
        console.print(f"{way.label}: done in {time.perf_counter() - started:.0f} s")
    baseline = results["V1"]
    for question, answer in zip(QUESTIONS, baseline.text, strict=True):
        console.print(f"\n{question}", style="bold", highlight=False, markup=False)
        console.print(answer.strip(), highlight=False, markup=False)
    console.print(_table(results), soft_wrap=True)
    console.print(
        "dspark n-gram has no draft model: it drafts from what each request has said, "
        "where something repeats itself (docs/dspark.md). The DSpark draft is a small "
        "one, trained on a CPU in half an hour (docs/train-draft.md)."
    )
    differing = [
        label for label, r in results.items() if r.token_ids != baseline.token_ids
    ]
    if differing:
        console.print(f"Tokens differ from V1's: {', '.join(differing)}.", style="red")
    else:
        console.print("All four gave the same tokens.", style="green")
    return not differing


def _run(way: Way, model: Path) -> Generation:
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch) / "result.json"
        command = [sys.executable, "-m", "vllm_kunlun.demo.generate"]
        command += [str(model), str(result)]
        command += ["--num-draft-tokens", str(way.num_draft_tokens)]
        if way.draft is not None:
            command += ["--draft", str(way.draft)]
        environment = os.environ | {"VLLM_USE_V2_MODEL_RUNNER": way.use_v2}
        # In a folder of its own: `-m` would take a checkout's sources for the package.
        done = subprocess.run(
            command,
            cwd=scratch,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            log = cache_folder() / "demo.log"
            log.write_text(done.stdout + done.stderr)
            raise RuntimeError(f"{way.label} failed to generate: read {log}.")
        return Generation(**json.loads(result.read_text()))


def _table(results: dict[str, Generation]) -> Table:
    headings = ("way", "runner", "tokens/s", "drafted", "accepted", "acceptance")
    lines = []
    for label, r in results.items():
        drafted, accepted = r.drafted or 0, r.accepted or 0
        counts = ("-", "-", "-")
        if drafted:
            counts = (str(drafted), str(accepted), f"{accepted / drafted:.1%}")
        runner = r.runner.rpartition(".")[0].removeprefix("vllm.v1.worker.")
        lines.append((label, runner, f"{r.tokens_per_second:.1f}", *counts))
    return make_table(headings, lines)
