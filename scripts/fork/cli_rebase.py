# SPDX-License-Identifier: Apache-2.0
"""The commands behind scripts/rebase and scripts/pin."""

from __future__ import annotations

from typing import Annotated

import typer

from fork import config, rebase, releases
from fork.errors import ForkError
from fork.fetch import Say
from fork.paths import Layout

Offline = Annotated[
    bool, typer.Option("--offline", help="Use the download cache alone.")
]


def register(app: typer.Typer, say: Say) -> None:
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
        offline: Offline = False,
    ) -> None:
        """Move the series to another upstream version, or look how that would go."""
        layout = Layout()
        settings = config.load(layout.config)
        if sum((to is not None, go_on, skip, abort)) != 1:
            raise ForkError(
                "scripts/rebase takes one of --to VERSION, --continue, --skip, --abort "
                "and --check: name one."
            )
        if to is not None:
            rebase.begin(layout, settings, to, source=source, offline=offline, say=say)
        elif go_on:
            rebase.resume(layout, settings, offline=offline, say=say)
        elif skip:
            rebase.skip(layout, settings, offline=offline, say=say)
        else:
            rebase.abort(layout, say=say)

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
