# SPDX-License-Identifier: Apache-2.0
"""The commands behind scripts/rebase, review and pin."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fork import check as checking
from fork import config, rebase, releases, report, review
from fork.errors import ForkError
from fork.fetch import Say
from fork.files import write_atomically
from fork.paths import Layout

Offline = Annotated[
    bool, typer.Option("--offline", help="Use the download cache alone.")
]


def register(app: typer.Typer, out: Console, say: Say) -> None:
    """Add the commands to the others."""

    @app.command("rebase")
    def rebase_command(
        versions: Annotated[
            list[str] | None, typer.Argument(help="Versions for --check; else all.")
        ] = None,
        to: Annotated[
            str | None, typer.Option("--to", help="The version to go to.")
        ] = None,
        source: Annotated[
            str | None, typer.Option("--from", help="Else upstream.toml's default.")
        ] = None,
        go_on: Annotated[
            bool, typer.Option("--continue", help="Take the files as resolved.")
        ] = False,
        skip: Annotated[
            bool, typer.Option("--skip", help="Drop the patch that stopped it.")
        ] = False,
        abort: Annotated[
            bool, typer.Option("--abort", help="Give the rebase up.")
        ] = False,
        check: Annotated[
            bool, typer.Option("--check", help="Only look; exit code 3 if work waits.")
        ] = False,
        json_file: Annotated[
            Path | None, typer.Option("--json", help="Write --check's findings there.")
        ] = None,
        page: Annotated[
            Path | None, typer.Option("--page", help="Write them as Markdown, too.")
        ] = None,
        offline: Offline = False,
    ) -> None:
        """Move the series to another upstream version, or look how that would go."""
        layout = Layout()
        settings = config.load(layout.config)
        if sum((to is not None, go_on, skip, abort, check)) != 1:
            raise ForkError(
                "scripts/rebase takes one of --to VERSION, --continue, --skip, --abort "
                "and --check: name one."
            )
        if not check and (versions or json_file or page):
            raise ForkError(
                "Versions, --json and --page belong to scripts/rebase --check: add it."
            )
        if check:
            found = checking.check(
                layout,
                settings,
                versions or (),
                source=source,
                offline=offline,
                say=say,
            )
            _write(found, json_file, page, versions or ())
            out.print(report.table(found), soft_wrap=False)
            for one in found.results:
                say(f"{one.release.version}: {report.to_do(one)}")
            if any(one.needs_work for one in found.results):
                raise typer.Exit(3)
        elif to is not None:
            rebase.begin(layout, settings, to, source=source, offline=offline, say=say)
        elif go_on:
            rebase.resume(layout, settings, offline=offline, say=say)
        elif skip:
            rebase.skip(layout, settings, offline=offline, say=say)
        else:
            rebase.abort(layout, say=say)

    @app.command("review")
    def review_command(
        old: Annotated[
            str, typer.Argument(help="A version, revision, or REV:VERSION.")
        ],
        new: Annotated[str, typer.Argument(help="Likewise; . is what is here.")] = ".",
        diff: Annotated[
            bool, typer.Option("--diff", help="Print the whole diff of the trees.")
        ] = False,
        offline: Offline = False,
    ) -> None:
        """Show what changed between two states of the series."""
        layout = Layout()
        settings = config.load(layout.config)
        review.review(layout, settings, old, new, diff=diff, offline=offline, say=say)

    @app.command()
    def pin(
        versions: Annotated[
            list[str] | None, typer.Argument(help="Releases, such as 0.26.0.")
        ] = None,
        new: Annotated[
            bool, typer.Option("--new", help="All that are newer than the newest.")
        ] = False,
    ) -> None:
        """Download releases of upstream and record them in upstream-releases.toml."""
        layout = Layout()
        settings = config.load(layout.config)
        wanted = releases.newer(layout, settings) if new else list(versions or ())
        if not wanted:
            if not new:
                raise ForkError("scripts/pin wants a version, or --new.")
            say("The package index has no newer release.")
        for version in wanted:
            releases.pin(layout, settings, version, say=say)


def _write(
    found: checking.Report,
    json_file: Path | None,
    page: Path | None,
    versions: Sequence[str],
) -> None:
    if json_file is not None:
        write_atomically(json_file, f"{report.as_json(found)}\n".encode())
    if page is not None:
        command = " ".join(["scripts/rebase --check --page", str(page), *versions])
        text = report.as_markdown(found, date.today(), command)
        write_atomically(page, text.encode())
