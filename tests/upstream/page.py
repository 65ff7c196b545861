# SPDX-License-Identifier: Apache-2.0
"""Writes `docs/upstream-tests.md` from the table: ``python tests/upstream/page.py``."""

from pathlib import Path

from entries import Run
from table import LEFT_OUT, RUNS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "upstream-tests.md"

HEAD = """\
# Upstream's own tests

Which tests out of upstream's sdist are run on our kernels, with the patched `vllm` and
`vllm-kunlun` as they are installed, on a CPU. `scripts/test.sh upstream` runs them, out
of the verified sdist: they are not copied into this project.

This page is written by `python tests/upstream/page.py` from `tests/upstream/table.py`.
A test that fails, that is skipped without being listed, or whose file tests V2 and is
not listed fails `tests/upstream`.

"""


def write() -> str:
    """Return the page."""
    passed = sum(run.passed for run in RUNS.values())
    parts = [
        HEAD,
        f"## Passed: {passed} tests in {len(RUNS)} files\n\n",
        "*n/a*: tests that do not apply, see below. *Device*: lines that ask for a GPU "
        "and get\nthe CPU. *Scaled*: made smaller, see below.\n\n",
        "| file, below `tests/` | tests | passed | n/a | device | scaled | our kernels "
        "|\n|---|---|---|---|---|---|---|\n",
        *(_row(file, run) for file, run in RUNS.items()),
        "\n## What else is changed in them\n",
        *(_changes(file, run) for file, run in RUNS.items()),
        "\n## What does not apply in them\n\n",
        "| file | tests (pattern) | why |\n|---|---|---|\n",
        *(_parts(file, run) for file, run in RUNS.items()),
        f"\n## Not run: {len(LEFT_OUT)} files\n\n",
        "| file, below `tests/` | why |\n|---|---|\n",
        *(f"| `{file}` | {why} |\n" for file, why in LEFT_OUT.items()),
    ]
    return "".join(parts)


def _row(file: str, run: Run) -> str:
    cells = [
        f"`{file}`",
        run.covers,
        run.passed,
        run.not_applicable or "",
        run.device_lines or "",
        "yes" if any(swap.scaled for swap in run.swaps) else "",
        ", ".join(f"`{kernel}`" for kernel in sorted(run.kernels)),
    ]
    return "| " + " | ".join(map(str, cells)) + " |\n"


def _changes(file: str, run: Run) -> str:
    changes = [
        f"- It is run with `{name}={value}`.\n"
        for name, value in run.environment.items()
    ]
    changes += [
        f"- {_code(swap.old)} becomes {_code(swap.new)}{' (scaled)' * swap.scaled}: "
        f"{swap.why}.\n"
        for swap in run.swaps
    ]
    return f"\n`{file}`\n\n" + "".join(changes) if changes else ""


def _code(text: str) -> str:
    """Return a piece of code as one line."""
    return f"`{' '.join(text.split())}`" if text else "nothing"


def _parts(file: str, run: Run) -> str:
    rows = [
        "| `{}` | `{}` | {} |\n".format(file, pattern.replace("|", "\\|"), why)
        for pattern, why in run.left_out.items()
    ]
    return "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(write())
