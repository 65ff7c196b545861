# SPDX-License-Identifier: Apache-2.0
"""Looks into a finished wheel: it must hold what was meant, or it is not kept."""

from __future__ import annotations

import email
import zipfile
from email.message import Message
from pathlib import Path

from packaging.requirements import Requirement

from fork.errors import ForkError

# `vllm` takes all of them from the donor on the host target.
KERNEL_FILES = (
    "vllm/_C.abi3.so",
    "vllm/_C_AVX2.abi3.so",
    "vllm/_C_AVX512.abi3.so",
    "vllm/fs_io_C.abi3.so",
    "vllm/spinloop.abi3.so",
)

# `vllm_kunlun` makes them itself.
HOST_LIBRARY = "vllm_kunlun/lib/libvllm_kunlun_host.so"
XPU_LIBRARY = "vllm_kunlun/lib/libvllm_kunlun_xpu.so"


def check_vllm(wheel: Path, version: str, torch: str, donor: Path | None) -> None:
    """Check vLLM's wheel against the donor, or for having no compiled files."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = _metadata(archive)
        _check_version(wheel, metadata, version)
        _check_torch(wheel, metadata, torch)
        target = _read(archive, "vllm/_build_target.py").decode()
        wanted = "cpu" if donor else "empty"
        if repr(wanted) not in target:
            raise _wrong(wheel, f"is not built for {wanted} ({target.strip()!r})")
        found = _compiled(archive)
        if donor is None:
            if found:
                raise _wrong(wheel, f"holds compiled files ({', '.join(found)})")
            return
        with zipfile.ZipFile(donor) as source:
            for name in KERNEL_FILES:
                if found.get(name) != _compiled(source).get(name):
                    raise _wrong(wheel, f"does not hold the donor's {name}")
        if extra := found.keys() - set(KERNEL_FILES):
            raise _wrong(wheel, f"holds {', '.join(sorted(extra))} of other origin")


def check_kunlun(wheel: Path, version: str, *, xpu: bool) -> None:
    """Check our own wheel, which has the XPU's library when it was built for it."""
    with zipfile.ZipFile(wheel) as archive:
        _check_version(wheel, _metadata(archive), version)
        found = _compiled(archive)
        if HOST_LIBRARY not in found:
            raise _wrong(wheel, "holds no compiled kernels", "at CMakeLists.txt")
        if xpu != (XPU_LIBRARY in found):
            does = "holds no" if xpu else "holds"
            fault = f"{does} kernels for the XPU ({XPU_LIBRARY})"
            raise _wrong(wheel, fault, "at CMakeLists.txt")


def _check_version(wheel: Path, metadata: Message, version: str) -> None:
    if (found := metadata["Version"]) != version:
        raise ForkError(
            f"{wheel.name} has the version {found}, but upstream.toml makes it "
            f"{version}: bring pyproject.toml and upstream.toml together."
        )


def _check_torch(wheel: Path, metadata: Message, torch: str) -> None:
    asked = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    for requirement in asked:
        if requirement.name == "torch" and "+" in str(requirement.specifier):
            raise _wrong(wheel, f"asks for {requirement}, which PyPI does not have")
        if requirement.name == "torch" and torch not in requirement.specifier:
            raise _wrong(wheel, f"asks for {requirement} instead of {torch}")


def _compiled(archive: zipfile.ZipFile) -> dict[str, tuple[int, int]]:
    """Map every compiled file to its size and checksum."""
    return {
        info.filename: (info.file_size, info.CRC)
        for info in archive.infolist()
        if info.filename.endswith(".so")
    }


def _metadata(archive: zipfile.ZipFile) -> Message:
    names = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(_read(archive, names[0] if names else "METADATA"))


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except KeyError:
        raise _wrong(Path(str(archive.filename)), f"has no {name}") from None


def _wrong(
    wheel: Path,
    fault: str,
    where: str = "at the patches that touch setup.py and requirements/",
) -> ForkError:
    return ForkError(
        f"The built {wheel.name} {fault}, so it was not kept: look {where}."
    )
