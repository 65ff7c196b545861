# SPDX-License-Identifier: Apache-2.0
"""The command ``vllm-kunlun``."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vllm_kunlun.bench.cli import app as bench
from vllm_kunlun.bench.cli import exit_codes

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
app.add_typer(bench, name="bench")
console = Console()


@app.command()
def demo(
    offline: Annotated[
        bool, typer.Option(help="Take the weights from the cache only.")
    ] = False,
) -> None:
    """Generate with V1, V2 and both kinds of dspark from real weights; compare."""
    # Read when tqdm is imported: a few seconds need no bars.
    os.environ["TQDM_DISABLE"] = "1"
    from vllm_kunlun.demo.report import run_demo

    with exit_codes():
        agree = run_demo(console, offline=offline)
    if not agree:
        raise typer.Exit(1)


@app.command()
def train_draft(
    draft: Annotated[Path, typer.Argument(help="Where the checkpoint goes.")],
    model: Annotated[
        Path | None, typer.Option(help="Folder of the target; SmolLM2-135M if not.")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="For what is made on the way, 2 GB; DRAFT.work if not."),
    ] = None,
    prompts: Annotated[int, typer.Option(help="Texts to learn from.")] = 3072,
    tokens: Annotated[int, typer.Option(help="The most of an answer.")] = 128,
    layers: Annotated[
        str, typer.Option(help="Layers of the target that the draft is told of.")
    ] = "9,19,29",
    vocabulary: Annotated[int, typer.Option(help="Tokens that can be drafted.")] = 4096,
    intermediate: Annotated[int, typer.Option(help="Width of the MLP.")] = 896,
    rank: Annotated[int, typer.Option(help="Rank of the Markov head.")] = 24,
    block: Annotated[int, typer.Option(help="Tokens drafted at once.")] = 5,
    steps: Annotated[int, typer.Option(help="Batches of 16 texts.")] = 1800,
    seed: Annotated[int, typer.Option(help="Of prompts, weights and order.")] = 0,
    seconds: Annotated[
        float | None,
        typer.Option(help="Stop then; the same command goes on from there."),
    ] = None,
) -> None:
    """Train a DSpark draft of one layer on the target's own answers."""
    os.environ["TQDM_DISABLE"] = "1"
    from vllm_kunlun.demo.weights import smollm2
    from vllm_kunlun.train.command import Options
    from vllm_kunlun.train.command import train_draft as train

    with exit_codes():
        options = Options(
            model=model or smollm2(),
            draft=draft,
            work=work or draft.with_name(f"{draft.name}.work"),
            prompts=prompts,
            tokens=tokens,
            layers=layers,
            vocabulary=vocabulary,
            intermediate=intermediate,
            rank=rank,
            block=block,
            steps=steps,
            seed=seed,
            seconds=seconds,
        )
        done = train(console, options)
    if not done:
        raise typer.Exit(3)


@app.command()
def doctor() -> None:
    """Say what is installed here, which kernels run and what is missing."""
    from vllm_kunlun.doctor import examine

    if not examine(console):
        raise typer.Exit(1)


def main() -> None:
    """Run the command line."""
    app()
