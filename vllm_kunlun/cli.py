# SPDX-License-Identifier: Apache-2.0
"""The command ``vllm-kunlun``."""

import os
from typing import Annotated

import typer
from rich.console import Console

from vllm_kunlun.bench.cli import app as bench

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
app.add_typer(bench, name="bench")
console = Console()


@app.command()
def demo(
    offline: Annotated[
        bool, typer.Option(help="Take the weights from the cache only.")
    ] = False,
) -> None:
    """Generate with V1, V2 and V2 + dspark from real weights; fail if they differ."""
    # Read when tqdm is imported: a few seconds need no bars.
    os.environ["TQDM_DISABLE"] = "1"
    from vllm_kunlun.demo.report import run_demo

    try:
        agree = run_demo(console, offline=offline)
    except RuntimeError as error:
        console.print(str(error), style="red")
        raise typer.Exit(1) from error
    if not agree:
        raise typer.Exit(1)


@app.command()
def doctor() -> None:
    """Say what is installed here, which kernels run and what is missing."""
    from vllm_kunlun.doctor import examine

    if not examine(console):
        raise typer.Exit(1)


def main() -> None:
    """Run the command line."""
    app()
