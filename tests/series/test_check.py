# SPDX-License-Identifier: Apache-2.0
"""A look at other releases finds what a rebase would, and touches nothing."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import made_up
import pytest
from fork import check as checking
from fork import cli, kernel_lock, paths, report, triton_kernels
from fork.check import Report
from fork.errors import ForkError
from fork.paths import Layout
from made_up import LINES, Project
from test_kernel_lock import MODULE, SOURCE

IN_THE_WAY = LINES.replace("line 10\n", "line 10 of upstream\n")
HAS_A = LINES.replace("line 10\n", "line ten\n")
STEPS = "vllm/v1/worker/gpu/steps.py"


@pytest.fixture
def forked(tmp_path: Path) -> Project:
    """Return a project with patches, an op and a lock; 1.1 and 1.2 break them."""
    made = made_up.project(tmp_path / "project")
    old = {STEPS: SOURCE, "vllm/limits.py": "MAX = 1\n"}
    made.release("1.0", old)
    made.release("1.1", old | {"pkg/lines.py": "new\n" + LINES})
    changed = SOURCE.replace("x + 1", "x + 2").replace("(x_ptr, n,", "(x_ptr, m, n,")
    made.release(
        "1.2",
        {STEPS: changed, "vllm/limits.py": "MIN = 1\n", "pkg/lines.py": IN_THE_WAY},
    )
    package = made.layout.root / "vllm_kunlun"
    package.mkdir()
    table = f"KERNELS = {{({MODULE!r}, '_step_kernel'): 'step'}}\nWITHOUT_OP = {{}}\n"
    (package / "kernels.py").write_text(table)
    (package / "limits.py").write_text("from vllm.limits import MAX\n")
    return made_up.with_two_patches(made)


def look(project: Project, *versions: str) -> Report:
    return checking.check(
        project.layout,
        project.settings,
        versions,
        offline=True,
        say=project.said.append,
    )


def everything(root: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_each_release_has_its_findings(forked: Project) -> None:
    moved, broken = look(forked).results
    assert [patch.outcome.value for patch in moved.patches] == ["moved", "moved"]
    assert not moved.kernels
    assert not moved.names
    assert not moved.needs_work
    assert [(p.outcome.value, dict(p.conflicts)) for p in broken.patches] == [
        ("conflict", {"pkg/lines.py": 1}),
        ("conflict", {"pkg/lines.py": 1}),
    ]
    assert [str(drift) for drift in broken.kernels] == [
        f"signature changed: _step_kernel of {MODULE} (our op step)",
        f"body changed: helper of {MODULE} (no op of ours)",
    ]
    assert [str(change) for change in broken.names] == [
        "vllm.limits.MAX (imported by vllm_kunlun/limits.py): gone"
    ]
    assert report.to_do(moved) == "Nothing by hand."
    assert report.to_do(broken) == (
        "Merge 2 patches by hand (2 hunks in 2 files); look at 1 op of ours again; "
        "look at 1 other Triton function; follow 1 name."
    )


def test_the_findings_are_those_of_a_rebase(forked: Project) -> None:
    forked.release("1.2", {"pkg/lines.py": HAS_A})
    (result,) = look(forked, "1.2").results
    assert [patch.outcome.value for patch in result.patches] == [
        "taken upstream",
        "clean",
    ]
    with pytest.raises(ForkError, match="upstream has it"):
        forked.rebase("1.2")
    forked.skip()
    assert [line for line in forked.said if line.startswith("[2/2] b")] == [
        "[2/2] b.patch: clean"
    ]


def test_nothing_is_touched(forked: Project) -> None:
    look(forked)
    before = everything(forked.layout.root)
    objects = everything(paths.upstreams())
    look(forked)
    assert everything(forked.layout.root) == before
    assert everything(paths.upstreams()) == objects


def test_a_warm_cache_needs_no_archive(forked: Project) -> None:
    first = look(forked)
    for archive in (paths.cache_dir() / "downloads").glob("*.gz"):
        archive.unlink()
    forked.said.clear()
    again = look(forked)
    assert [r.patches for r in again.results] == [r.patches for r in first.results]
    assert forked.said == ["[1/2] vLLM 1.1", "[2/2] vLLM 1.2"]


def test_a_release_that_was_replaced_is_imported_again(forked: Project) -> None:
    look(forked)
    forked.release("1.1", {"pkg/lines.py": IN_THE_WAY})
    (result,) = look(forked, "1.1").results
    assert result.patches[0].outcome.value == "conflict"


def test_bad_input_is_one_sentence(forked: Project) -> None:
    with pytest.raises(ForkError, match=r"vLLM 9\.9 is not pinned"):
        look(forked, "1.1", "9.9")
    forked.release("1.1", {STEPS: "type X[ = new syntax of triton.jit"})
    with pytest.raises(ForkError, match=r"vLLM 1\.1 has Python that .* cannot read"):
        look(forked, "1.1")
    (forked.patches / "b.patch").unlink()
    with pytest.raises(ForkError, match="which is not in the folder"):
        look(forked)


def test_json_and_page_say_the_same(forked: Project) -> None:
    found = look(forked)
    data = json.loads(report.as_json(found))
    page = report.as_markdown(found, date(2026, 1, 2), "the command")
    assert [one["needs_work"] for one in data["versions"]] == [False, True]
    assert "Written on 2026-01-02 by `the command`" in page
    for one in data["versions"]:
        assert f"## {one['version']}\n\n{one['to_do']}" in page
        for patch in one["patches"]:
            assert f"| {patch['name']} | {patch['outcome']} |" in page
    assert "| `_step_kernel` | worker.gpu.steps | signature changed | `step` |" in page
    assert "- `vllm.limits.MAX`, imported by vllm_kunlun/limits.py:\n  gone" in page


@pytest.mark.parametrize(("version", "code"), [("1.1", 0), ("1.2", 3)])
def test_the_exit_code_says_whether_work_waits(
    forked: Project,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    version: str,
    code: int,
) -> None:
    monkeypatch.setattr("fork.cli_rebase.Layout", lambda: forked.layout)
    output = tmp_path / "out.json"
    command = ["rebase", "--check", version, "--offline", "--json", str(output)]
    with pytest.raises(SystemExit) as stop:
        cli.app(command)
    assert stop.value.code == code
    assert json.loads(output.read_text())["versions"][0]["version"] == version


@pytest.mark.parametrize(
    "arguments", [[], ["--to", "1.1", "--skip"], ["--to", "1.1", "1.2"]]
)
def test_options_that_do_not_fit_are_refused(
    forked: Project, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr("fork.cli_rebase.Layout", lambda: forked.layout)
    with pytest.raises(ForkError, match="scripts/rebase"):
        cli.app(["rebase", *arguments])


def test_the_real_lock_is_read_the_same_from_git_and_from_files(
    forked: Project,
) -> None:
    tree = forked.tree
    files = {STEPS: (tree / STEPS).read_text()}
    assert triton_kernels.scan(tree) == triton_kernels.scan_sources(files)
    lock = kernel_lock.read(forked.layout.kernel_lock("1.0"))
    assert [*lock.values()] == triton_kernels.scan(tree)


def test_the_pinned_releases_are_all_known() -> None:
    from fork import config, releases

    layout = Layout()
    known = releases.known(layout, config.load(layout.config))
    assert [*known][:3] == ["0.25.0", "0.25.1", "0.26.0"]
    assert all(one.sdist.version == version for version, one in known.items())
