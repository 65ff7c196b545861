# SPDX-License-Identifier: Apache-2.0
"""Writes `docs/upstream-tests.md` from the table: ``python tests/upstream/page.py``."""

from pathlib import Path

from entries import VERSIONS, Run, count
from table import LEFT_OUT, RUNS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "upstream-tests.md"

HEAD = """\
# Upstream's own tests

Which tests out of upstream's sdist are run on our kernels, with the patched `vllm` and
`vllm-kunlun` as they are installed, on a CPU. `scripts/test.sh upstream` runs them, out
of the verified sdist: they are not copied into this project. With `--upstream 0.26.0`
before `upstream` it runs those of that version.

This page is written by `python tests/upstream/page.py` from `tests/upstream/table.py`.
A test that fails, that is skipped without being listed, or whose file tests V2 and is
not listed fails `tests/upstream`.

"""


def write() -> str:
    """Return the page."""
    parts = [
        HEAD,
        "## What is run\n\n",
        *map(_passed, VERSIONS),
        "\n",
        "*n/a*: tests that do not apply, see below. *Device*: lines that ask for a GPU "
        "and get\nthe CPU. *Scaled*: made smaller, see below.\n\n",
        "| file, below `tests/` | tests | "
        + "".join(f"passed, {version} | n/a | " for version in VERSIONS)
        + "device | scaled | our kernels |\n"
        + "|---" * (5 + 2 * len(VERSIONS))
        + "|\n",
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


def _passed(version: str) -> str:
    runs = [run for run in RUNS.values() if version in run.versions]
    passed = sum(count(run.passed, version) for run in runs)
    return f"- {version}: {passed} tests in {len(runs)} files pass.\n"


def _counts(run: Run) -> list[str]:
    """Return what of a file passes in each version, and what does not apply."""
    return [
        str(count(tests, version) or "") if version in run.versions else "-"
        for version in VERSIONS
        for tests in (run.passed, run.not_applicable)
    ]


def _row(file: str, run: Run) -> str:
    cells = [
        f"`{file}`",
        run.covers,
        *_counts(run),
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
