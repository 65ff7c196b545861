# SPDX-License-Identifier: Apache-2.0
"""A wheel that is not what was meant is not kept."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from fork.build import contents
from fork.errors import ForkError

VERSION = "0.25.1+kunlun.1.cpu"
NAMES = [*contents.KERNEL_FILES]


def wheel(
    folder: Path,
    *,
    kernels: dict[str, bytes],
    version: str = VERSION,
    torch: str = "torch==2.11.0",
    target: str = "cpu",
) -> Path:
    path = folder / "vllm-0.25.1-py3-none-any.whl"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        info = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
        archive.writestr("vllm.dist-info/METADATA", f"{info}Requires-Dist: {torch}\n")
        archive.writestr("vllm/_build_target.py", f"TARGET_DEVICE = {target!r}\n")
        for name, data in kernels.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def donor(tmp_path: Path) -> Path:
    return wheel(tmp_path / "donor", kernels={name: name.encode() for name in NAMES})


GOOD = {name: name.encode() for name in NAMES}


def test_good_wheels_pass(tmp_path: Path, donor: Path) -> None:
    good = wheel(tmp_path / "host", kernels=GOOD)
    contents.check_vllm(good, VERSION, "2.11.0", donor)
    bare = wheel(tmp_path / "kunlun", kernels={}, target="empty", version="1")
    contents.check_vllm(bare, "1", "2.11.0", None)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"kernels": dict(list(GOOD.items())[:3])}, "does not hold the donor's"),
        (
            {"kernels": GOOD | {NAMES[0]: b"other"}},
            r"does not hold the donor's vllm/_C",
        ),
        ({"kernels": GOOD | {"vllm/_x.so": b""}}, r"holds vllm/_x\.so of other origin"),
        ({"version": "0.25.1"}, r"has the version 0\.25\.1, but upstream\.toml makes"),
        ({"torch": "torch==2.11.0+cpu"}, "which PyPI does not have"),
        ({"torch": "torch==2.12.0"}, r"asks for torch==2\.12\.0 instead of 2\.11\.0"),
        ({"target": "cuda"}, "is not built for cpu"),
    ],
)
def test_bad_wheels_are_refused(
    tmp_path: Path, donor: Path, change: dict[str, object], match: str
) -> None:
    bad = wheel(tmp_path / "host", **{"kernels": GOOD, **change})  # type: ignore[arg-type]
    with pytest.raises(ForkError, match=match):
        contents.check_vllm(bad, VERSION, "2.11.0", donor)


def test_compiled_files_in_the_kunlun_wheel_are_refused(tmp_path: Path) -> None:
    bad = wheel(tmp_path / "kunlun", kernels=GOOD, target="empty")
    with pytest.raises(ForkError, match="holds compiled files"):
        contents.check_vllm(bad, VERSION, "2.11.0", None)


HOST, XPU = contents.HOST_LIBRARY, contents.XPU_LIBRARY


@pytest.mark.parametrize(("libraries", "xpu"), [([HOST], False), ([HOST, XPU], True)])
def test_our_wheel_has_the_kernels_it_was_built_for(
    tmp_path: Path, libraries: list[str], xpu: bool
) -> None:
    ours = wheel(tmp_path / "ours", kernels=dict.fromkeys(libraries, b""))
    contents.check_kunlun(ours, VERSION, xpu=xpu)


@pytest.mark.parametrize(
    ("libraries", "xpu", "match"),
    [
        ([], False, "holds no compiled kernels"),
        ([HOST], True, r"holds no kernels for the XPU \(.*xpu\.so\), so it was not"),
        ([HOST, XPU], False, "holds kernels for the XPU"),
    ],
)
def test_our_wheel_with_other_kernels_is_refused(
    tmp_path: Path, libraries: list[str], xpu: bool, match: str
) -> None:
    ours = wheel(tmp_path / "ours", kernels=dict.fromkeys(libraries, b""))
    with pytest.raises(ForkError, match=match):
        contents.check_kunlun(ours, VERSION, xpu=xpu)
