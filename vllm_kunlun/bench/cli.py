# SPDX-License-Identifier: Apache-2.0
"""The commands ``vllm-kunlun bench ...``."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Measure how fast it is here.")
console = Console()

Json = Annotated[Path | None, typer.Option(help="Write all figures there.")]
Markdown = Annotated[Path | None, typer.Option(help="Write tables there.")]
Concurrency = Annotated[str, typer.Option(help="Requests at once.")]
Requests = Annotated[
    int, typer.Option(help="Requests per run, times requests at once.")
]
Rounds = Annotated[int, typer.Option(help="Times that each way is measured.")]
Dtype = Annotated[str, typer.Option(help="As vLLM's.")]
Compiled = Annotated[
    bool, typer.Option("--compiled", help="Let vLLM compile the model.")
]


@contextmanager
def exit_codes() -> Iterator[None]:
    """Print what went wrong in a sentence, and exit with 1."""
    try:
        yield
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        # Without markup: it would swallow what is in brackets.
        console.print(str(error), style="red", soft_wrap=True, markup=False)
        raise typer.Exit(1) from error


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
    json: Json = None,
    markdown: Markdown = None,
) -> None:
    """Measure each kernel against torch code that does the same work."""
    from vllm_kunlun.bench.kernels.command import bench_kernels

    if quick:
        requests, vocabulary, seconds = "1,32", "32k", 0.05
    with exit_codes():
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
    if not complete:
        raise typer.Exit(130)


@app.command()
def step(
    requests: Annotated[
        str, typer.Option(help="Numbers of requests.")
    ] = "1,8,32,128,256,512",
    drafts: Annotated[str, typer.Option(help="Drafts per request, 0 to 15.")] = "0,7",
    groups: Annotated[str, typer.Option(help="KV cache groups, 1 to 4.")] = "1",
    vocabulary: Annotated[
        str, typer.Option(help="Size of the null model's vocabulary.")
    ] = "128",
    hidden: Annotated[
        str, typer.Option(help="Its width; above 8, the draft projects its context.")
    ] = "8",
    sampling: Annotated[
        str, typer.Option(help="greedy, seeded or masked (penalties, biases).")
    ] = "greedy",
    turnover: Annotated[
        int, typer.Option(help="Requests that end and enter in each step.")
    ] = 0,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Only this column and 'off'; may be given again."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time for each shape.")] = 5,
    threads: Annotated[int, typer.Option(help="Threads of torch and of ours.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="1 and 32 requests, 7 drafts, 1 s each.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="xpu: estimate what the counts cost there.")
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(help="A cost of that estimate, such as launch=5."),
    ] = None,
    json: Json = None,
    markdown: Markdown = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the times there.")] = None,
) -> None:
    """Measure the V2 runner's control plane without a model, switches on and off."""
    from vllm_kunlun.bench.step.command import Options, bench_step

    if quick:
        requests, drafts, seconds = "1,32", "7", 1
    options = Options(
        requests=requests,
        drafts=drafts,
        groups=groups,
        vocabulary=vocabulary,
        hidden=hidden,
        sampling=sampling,
        turnover=turnover,
        columns=column or [],
        seconds=seconds,
        threads=threads,
        model=model,
        costs=cost or [],
        json=json,
        markdown=markdown,
        plot=plot,
    )
    with exit_codes():
        complete = bench_step(console, options)
    if not complete:
        raise typer.Exit(130)


@app.command()
def layers(
    model: Annotated[
        Path | None, typer.Option(help="Folder of a model; SmolLM2-135M if not.")
    ] = None,
    requests: Annotated[str, typer.Option(help="Requests at once.")] = "1,8,32",
    tokens: Annotated[int, typer.Option(help="New tokens per request.")] = 256,
    dtype: Dtype = "bfloat16",
    quick: Annotated[
        bool, typer.Option("--quick", help="8 requests at once, 32 tokens.")
    ] = False,
    json: Json = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a table there.")] = None,
) -> None:
    """Measure whole steps on a CPU with the layers in upstream's form and in ours."""
    from vllm_kunlun.bench.layers.command import Options, bench_layers

    if quick:
        requests, tokens = "8", 32
    options = Options(
        model=model,
        requests=requests,
        tokens=tokens,
        dtype=dtype,
        json=json,
        markdown=markdown,
    )
    with exit_codes():
        bench_layers(console, options)


@app.command()
def spec(
    model: Annotated[
        Path | None, typer.Option(help="Folder of the target; SmolLM2-135M if not.")
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(help="A DSpark checkpoint; the demo's if not.")
    ] = None,
    way: Annotated[
        list[str] | None, typer.Option(help="Only this way; may be given again.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="Only this text; may be given again.")
    ] = None,
    concurrency: Concurrency = "1,8,32",
    drafts: Annotated[int, typer.Option(help="Drafts per step, 1 to 15.")] = 7,
    lookup: Annotated[
        str, typer.Option(help="Shortest and longest match of n-gram drafters.")
    ] = "2,4",
    tokens: Annotated[int, typer.Option(help="New tokens per request.")] = 128,
    requests: Requests = 4,
    rounds: Rounds = 3,
    acceptance: Annotated[
        str, typer.Option(help="Acceptances to force, 0 to 1; empty for none.")
    ] = "0,0.25,0.5,0.75,1",
    dtype: Dtype = "bfloat16",
    compiled: Compiled = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="4 ways, 2 texts, 1 and 8 requests, one round."),
    ] = False,
    json: Json = None,
    markdown: Markdown = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the figures there.")] = None,
) -> None:
    """Measure what speculation brings: V1 and V2, n-gram and DSpark drafts.

    Each way has an engine that stays up, of about 2 GB with the default model.
    """
    from vllm_kunlun.bench.spec.command import Options, bench_spec

    if quick:
        way = way or ["V1", "V1 + ngram", "V2", "V2 + dspark n-gram"]
        text = text or ["code edit", "open chat"]
        concurrency, tokens, requests, rounds, acceptance = "1,8", 32, 1, 1, ""
    options = Options(
        model=model,
        draft=draft,
        ways=way or [],
        texts=text or [],
        concurrency=concurrency,
        drafts=drafts,
        lookup=lookup,
        max_tokens=tokens,
        requests=requests,
        rounds=rounds,
        rates=acceptance,
        dtype=dtype,
        compiled=compiled,
        json=json,
        markdown=markdown,
        plot=plot,
    )
    with exit_codes():
        bench_spec(console, options)


@app.command()
def serve(
    model: Annotated[
        Path | None, typer.Option(help="Folder of a model; SmolLM2-135M if not.")
    ] = None,
    concurrency: Concurrency = "1,8,32",
    requests: Requests = 2,
    input_len: Annotated[int, typer.Option(help="Tokens of a prompt.")] = 128,
    output_len: Annotated[int, typer.Option(help="New tokens of a request.")] = 128,
    rounds: Rounds = 3,
    dtype: Dtype = "bfloat16",
    compiled: Compiled = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="8 requests at once, 32 tokens, one round.")
    ] = False,
    json: Json = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a table there.")] = None,
) -> None:
    """Load servers with V1, V2 with all switches off and V2, by vllm bench serve."""
    from vllm_kunlun.bench.serve.command import Options, bench_serve

    if quick:
        concurrency, requests, output_len, rounds = "8", 1, 32, 1
    options = Options(
        model=model,
        concurrency=concurrency,
        requests=requests,
        input_len=input_len,
        output_len=output_len,
        rounds=rounds,
        dtype=dtype,
        compiled=compiled,
        json=json,
        markdown=markdown,
    )
    with exit_codes():
        bench_serve(console, options)
