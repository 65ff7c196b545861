# SPDX-License-Identifier: Apache-2.0
"""The commands ``vllm-kunlun bench ...``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Measure how fast it is here.")
console = Console()


@app.command()
def kernels(
    kernel: Annotated[
        list[str] | None, typer.Option(help="Only this op; may be given again.")
    ] = None,
    requests: Annotated[
        str, typer.Option(help="Numbers of requests.")
    ] = "1,8,32,128,512",
    vocabulary: Annotated[
        str, typer.Option(help="Sizes for the kernels that pass over logits.")
    ] = "32k,128k,256k",
    seconds: Annotated[float, typer.Option(help="Time for each size.")] = 0.5,
    threads: Annotated[
        int | None, typer.Option(help="Threads of both sides; torch's choice if not.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="1 and 32 requests, 32k, 0.05 s each.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write all figures there.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write tables there.")] = None,
) -> None:
    """Measure each kernel against torch code that does the same work."""
    from vllm_kunlun.bench.kernels.command import bench_kernels

    if quick:
        requests, vocabulary, seconds = "1,32", "32k", 0.05
    try:
        complete = bench_kernels(
            console,
            chosen=kernel or [],
            requests=requests,
            vocabulary=vocabulary,
            seconds=seconds,
            threads=threads,
            json=json,
            markdown=markdown,
        )
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        console.print(str(error), style="red", soft_wrap=True)
        raise typer.Exit(1) from error
    if not complete:
        raise typer.Exit(130)
