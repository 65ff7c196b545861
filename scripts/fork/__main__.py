# SPDX-License-Identifier: Apache-2.0
"""Runs the fork tools, or says which of their requirements is missing."""

import sys

try:
    from fork.cli import main
except ModuleNotFoundError as error:
    sys.exit(
        f"error: {sys.executable} has no module {error.name!r}: run "
        "scripts/apply_and_build.sh once, or `pip install gitpython packaging rich "
        "tomlkit typer`."
    )

sys.exit(main())
