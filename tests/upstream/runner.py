# SPDX-License-Identifier: Apache-2.0
"""Runs upstream's tests, out of its sdist, against what is installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from entries import DEVICE, VERSIONS, Run
from table import MODELS, RUNS

TREE_VARIABLE = "VLLM_KUNLUN_UPSTREAM_TREE"
CONFTEST = Path(__file__).with_name("conftest_for_upstream.py")
LIMIT_S = 1200

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",  # needs a compiler
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one test."""

    result: str
    """``passed``, ``failed`` or ``skipped``."""
    message: str
    kernels: frozenset[str]


Outcomes = dict[str, dict[str, Outcome]]
"""File -> name of the test -> what became of it."""


def upstream_version() -> str:
    """Return the version whose tests are run.

    Raises:
        RuntimeError: the table has nothing for it.
    """
    metadata = (upstream_tests().parent / "PKG-INFO").read_text("utf-8")
    found = re.search(r"^Version: (.+)$", metadata, re.MULTILINE)
    version = found[1] if found else "(none)"
    if version not in VERSIONS:
        raise RuntimeError(
            f"{TREE_VARIABLE} names vLLM {version}, but the table has "
            f"{', '.join(VERSIONS)}: name one of these, or add it to entries.py."
        )
    return version


def upstream_tests() -> Path:
    """Return the folder of upstream's tests.

    Raises:
        RuntimeError: the unpacked sdist is not named.
    """
    tree = os.environ.get(TREE_VARIABLE, "")
    tests = Path(tree) / "tests"
    if not (tests / "v1").is_dir():
        raise RuntimeError(
            f"{TREE_VARIABLE} must name an unpacked vLLM source tree, whose tests are "
            f"run, but is {tree!r}."
        )
    return tests


def prepare(files: Iterable[str], folder: Path) -> None:
    """Copy upstream's tests into `folder`, with our conftest, models and swaps."""
    tests = folder / "tests"
    shutil.copytree(
        upstream_tests(), tests, ignore=shutil.ignore_patterns("conftest.py")
    )
    shutil.copyfile(CONFTEST, tests / "conftest.py")
    (folder / "pytest.ini").write_text("[pytest]\n")
    for model, config in MODELS.items():
        (folder / model).mkdir(parents=True)
        (folder / model / "config.json").write_text(json.dumps(config))
    for file in files:
        path = tests / file
        text = swap(file, path.read_text("utf-8"), RUNS[file])
        path.write_text(text, "utf-8")
    settings = {
        file: {
            "environment": dict(RUNS[file].environment),
            "left_out": dict(RUNS[file].left_out),
        }
        for file in files
    }
    (tests / "settings.json").write_text(json.dumps(settings))


def swap(file: str, text: str, run: Run) -> str:
    """Return upstream's `text` as it is run.

    Raises:
        ValueError: upstream has changed what the table replaces.
    """
    text, lines = DEVICE.subn(_for_cpu, text)
    if lines != run.device_lines:
        raise ValueError(
            f"{file} asks {lines} times for a GPU, but {run.device_lines} times by the "
            "table: look at what is new, then correct device_lines."
        )
    for piece in run.swaps:
        if (times := text.count(piece.old)) != piece.times:
            raise ValueError(
                f"{file} has {piece.old!r} {times} times, but {piece.times} times by "
                "the table: look at what is new, then correct the swap."
            )
        text = text.replace(piece.old, piece.new)
    return text


def _for_cpu(match: re.Match[str]) -> str:
    if kept := match["call"] or match["name"]:
        return f'{kept}"cpu"'
    return "None" if "importorskip" in match[0] else "False"


def run(files: Iterable[str], folder: Path) -> Outcomes:
    """Run `files` in `folder`, in one process of its own.

    Raises:
        RuntimeError: pytest did not come to an end.
    """
    files = sorted(files)
    prepare(files, folder)
    report = folder / "report.xml"
    environment = {**os.environ, **ENVIRONMENT}
    environment.pop("VLLM_USE_V2_MODEL_RUNNER", None)
    # In `folder`, so that upstream's tests find each other as the package `tests`.
    command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "--quiet"]
    command += ["-p", "no:cacheprovider", "--override-ini=junit_family=xunit1"]
    command += ["--disable-warnings", "--durations=10", f"--junit-xml={report}"]
    command += [f"tests/{file}" for file in files]
    log = folder / "log.txt"
    with log.open("w") as output:
        process = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
    if process.returncode not in (0, 1):  # all passed, some failed
        tail = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-60:])
        raise RuntimeError(
            f"upstream's tests ended early, with {process.returncode}:\n{tail}"
        )
    return read(report)


def read(report: Path) -> Outcomes:
    """Return what a JUnit report says."""
    outcomes: Outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        path = Path(case.attrib["file"])
        classes = case.attrib["classname"].split(".")[len(path.parts) :]
        name = "::".join([*classes, case.attrib["name"]])
        file = path.relative_to("tests").as_posix()
        outcomes.setdefault(file, {})[name] = _outcome(case)
    return outcomes


def _outcome(case: ElementTree.Element) -> Outcome:
    kernels = frozenset(
        item.attrib["value"]
        for item in case.iter("property")
        if item.attrib["name"] == "kernel"
    )
    tags = {"failure": "failed", "error": "failed", "skipped": "skipped"}
    for tag, result in tags.items():
        if (found := case.find(tag)) is not None:
            return Outcome(result, found.text or "", kernels)
    return Outcome("passed", "", kernels)
