# SPDX-License-Identifier: Apache-2.0
"""Upstream's own tests of V2 pass on our kernels, and none is forgotten."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import page
import pytest
import runner
from entries import count
from runner import Outcomes
from table import LEFT_OUT, RUNS

# What a test file has that is about V2.
ABOUT_V2 = re.compile(
    r"vllm\.v1\.worker\.gpu[. ]"
    r"|vllm\.v1\.worker\.mamba_utils"
    r"|V2_MODEL_RUNNER"
    r"|use_v2_model_runner",
)
# Helpers that tests of V2 share, no tests themselves.
SHARED = {"utils.py", "v1/core/utils.py"}
CI = Path(".buildkite/test_areas/model_runner_v2.yaml")


@pytest.fixture(scope="session")
def version() -> str:
    """Give the version whose tests are run."""
    return runner.upstream_version()


@pytest.fixture(scope="session")
def outcomes(
    version: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Outcomes:
    """Run the files that are asked for, in one process."""
    files = {
        str(item.callspec.params["file"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }
    files = {file for file in files if version in RUNS[file].versions}
    return runner.run(files, tmp_path_factory.mktemp("upstream"))


@pytest.mark.parametrize("file", RUNS)
def test_file(file: str, version: str, request: pytest.FixtureRequest) -> None:
    run = RUNS[file]
    if version not in run.versions:
        pytest.skip(f"is not about V2 in {version}")
    tests = request.getfixturevalue("outcomes")[file]
    wrong = [
        f"{name}: {test.result}: {test.message}"
        for name, test in tests.items()
        if test.result != ("skipped" if run.why_left_out(name) else "passed")
    ]
    assert not wrong, "\n".join(wrong)
    for pattern in run.left_out:
        assert any(re.fullmatch(pattern, name) for name in tests), pattern
    counts = Counter(test.result for test in tests.values())
    assert counts == Counter(
        passed=count(run.passed, version), skipped=count(run.not_applicable, version)
    )
    launched = frozenset[str]().union(*(test.kernels for test in tests.values()))
    assert launched == run.kernels


def test_no_test_of_v2_is_forgotten() -> None:
    found = set(files_about_v2(runner.upstream_tests())) | set(files_of_upstreams_ci())
    assert found - SHARED - RUNS.keys() - LEFT_OUT.keys() == set()


def test_every_file_of_the_table_exists(version: str) -> None:
    tests = runner.upstream_tests()
    files = [file for file, run in RUNS.items() if version in run.versions]
    missing = [file for file in (*files, *LEFT_OUT) if not (tests / file).is_file()]
    assert missing == []


def test_the_page_is_up_to_date() -> None:
    assert page.PAGE.read_text() == page.write(), "run python tests/upstream/page.py"


def files_about_v2(tests: Path) -> Iterator[str]:
    """Find the files that import or choose V2."""
    for path in tests.rglob("*.py"):
        if path.name != "conftest.py" and ABOUT_V2.search(path.read_text("utf-8")):
            yield path.relative_to(tests).as_posix()


def files_of_upstreams_ci() -> list[str]:
    """Return the files that upstream's own CI runs with V2."""
    commands = (runner.upstream_tests().parent / CI).read_text()
    return re.findall(r"^ *- .*\bpytest .*?(\S+\.py)", commands, re.MULTILINE)
