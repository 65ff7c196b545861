# SPDX-License-Identifier: Apache-2.0
"""The commands behind scripts/fetch, apply, export, verify and the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fork import apply as applying
from fork import cli_rebase, config, kernel_lock, sdist, triton_kernels
from fork import export as exporting
from fork import fetch as fetching
from fork import status as showing
from fork import verify as verifying
from fork.cli_rebase import Offline
from fork.errors import ForkError, explain_os_error
from fork.hermetic import GitError, explain_git_error
from fork.paths import Layout

app = typer.Typer(
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
_out = Console(highlight=False, soft_wrap=True)
_err = Console(highlight=False, soft_wrap=True, stderr=True)

Version = Annotated[
    str | None,
    typer.Option("--upstream", help="The vLLM version, else upstream.toml's default."),
]


def say(text: str) -> None:
    """Print one line of progress."""
    _out.print(text, markup=False)


def _settings(version: str | None) -> tuple[Layout, config.Upstream]:
    layout = Layout()
    return layout, config.load(layout.config).upstream(version)


@app.command()
def fetch(
    what: Annotated[
        list[str], typer.Argument(help="sdist, donor, or a name from [weights].")
    ] = ["sdist", "donor"],  # noqa: B006  (typer copies it)
    version: Version = None,
    offline: Offline = False,
) -> None:
    """Download the pinned files into the cache and check them."""
    layout, upstream = _settings(version)
    known = {"sdist": upstream.sdist, "donor": upstream.donor}
    known |= config.load(layout.config).weights
    for name in what:
        if name not in known:
            raise ForkError(f"There is no file {name!r}: choose of {', '.join(known)}.")
        say(str(fetching.fetch(known[name], offline=offline, say=say)))


@app.command()
def pristine(version: Version = None, offline: Offline = False) -> None:
    """Unpack the unpatched sources below build/ and print where they are."""
    layout, upstream = _settings(version)
    archive = fetching.fetch(upstream.sdist, offline=offline, say=_err.print)
    digest = upstream.sdist.sha256
    say(str(sdist.unpack(archive, digest, layout.pristine(upstream.version))))


@app.command()
def apply(
    version: Version = None,
    offline: Offline = False,
    set_aside: Annotated[
        bool, typer.Option("--set-aside", help="Keep the present tree under a name.")
    ] = False,
) -> None:
    """Make build/vllm-VERSION: upstream, and one commit per patch."""
    layout, upstream = _settings(version)
    applying.apply(layout, upstream, offline=offline, set_aside=set_aside, say=say)


@app.command()
def export(version: Version = None, offline: Offline = False) -> None:
    """Write the commits of build/vllm-VERSION as patches/VERSION."""
    layout, upstream = _settings(version)
    exporting.export(layout, upstream, offline=offline, say=say)


@app.command()
def verify(
    version: Version = None,
    offline: Offline = False,
    update: Annotated[
        bool, typer.Option("--update", help="Write what came out into upstream.toml.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Verify all maintained versions.")
    ] = False,
) -> None:
    """Prove that the series applies strictly and exports to the same bytes."""
    layout, upstream = _settings(version)
    known = config.load(layout.config).upstreams
    try:
        for one in known.values() if every else [upstream]:
            verifying.verify(layout, one, offline=offline, update=update, say=say)
    except verifying.NotAFixpoint as error:
        _err.print(f"error: {error}", markup=False)
        _out.print(error.fix, markup=False, end="")
        raise typer.Exit(1) from None


@app.command()
def status(version: Version = None) -> None:
    """Show the patches, and whether tree, series and lock agree."""
    layout, upstream = _settings(version)
    found = showing.status(layout, upstream)
    table = Table("#", "patch", "files", "+", "-", show_lines=True)
    for number, row in enumerate(found.rows, 1):
        lines = [f"[bold]{escape(row.name)}[/bold]", escape(row.subject)]
        lines.append(f"[dim]forwarded:[/dim] {escape(row.forwarded)}")
        lines.append(f"[dim]drop when:[/dim] {escape(row.drop_when)}")
        counts = (str(row.files), str(row.added), str(row.removed))
        table.add_row(str(number), "\n".join(lines), *counts)
    _out.print(table, soft_wrap=False)
    for note in found.notes:
        say(note)


@app.command()
def drift(
    tree: Annotated[Path, typer.Argument(help="An unpacked vLLM source tree.")],
    version: Version = None,
) -> None:
    """Say which Triton kernels of a tree differ from those that the lock has."""
    layout, upstream = _settings(version)
    found = triton_kernels.scan(tree)
    if not found:
        raise ForkError(f"{tree} has no Triton kernels of V2: name a vLLM source tree.")
    locked = kernel_lock.read(layout.kernel_lock(upstream.version))
    drifts = kernel_lock.drift(locked, found, kernel_lock.ours(layout).ops)
    for one in drifts:
        say(str(one))
    say(f"{len(found)} kernels in {tree}, {len(drifts)} not as {upstream.version}'s.")
    if drifts:
        raise typer.Exit(1)


cli_rebase.register(app, _out, say)


def main() -> int:
    """Run a command; every foreseeable failure is one sentence and exit code 1."""
    try:
        app(standalone_mode=True)
    except ForkError as error:
        for line in str(error).splitlines():
            _err.print(f"error: {line}", markup=False)
    except OSError as error:
        _err.print(f"error: {explain_os_error(error)}", markup=False)
    except GitError as error:
        _err.print(f"error: {explain_git_error(error)}", markup=False)
    return 1
