# SPDX-License-Identifier: Apache-2.0
"""Entry of scripts/apply_and_build.sh, first outside and then in the environment."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from fork.build import options
from fork.errors import ForkError, explain_os_error


def main(arguments: list[str]) -> int:
    """Run the steps; every foreseeable failure is one sentence and exit code 1."""
    asked = options.parse(arguments)
    # An ended session or a CI job's time limit is an interruption like Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _interrupt)
    try:
        if asked.started is None:
            from fork.build.bootstrap import bootstrap

            bootstrap(asked, arguments)
        else:
            _continue(asked, asked.started)
    except ForkError as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"\nerror: {explain_os_error(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\nInterrupted: run the same command again, it continues where it stopped.",
            file=sys.stderr,
        )
        return 130
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _continue(asked: options.Options, started: float) -> None:
    """Do the steps that need the tools in the environment."""
    from fork.build.pipeline import pipeline
    from fork.hermetic import GitError, explain_git_error

    try:
        pipeline(asked, started)
    except GitError as error:
        raise ForkError(explain_git_error(error)) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
