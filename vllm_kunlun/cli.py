# SPDX-License-Identifier: Apache-2.0
"""The command ``vllm-kunlun``."""

from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
console = Console()


@app.command()
def demo(
    offline: Annotated[
        bool, typer.Option(help="Take the weights from the cache only.")
    ] = False,
) -> None:
    """Generate with V1, V2 and V2 + dspark from real weights; fail if they differ."""
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
