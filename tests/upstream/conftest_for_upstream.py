# SPDX-License-Identifier: Apache-2.0
"""Stands in for upstream's conftest where its tests are run on our kernels.

Copied beside upstream's tests; nothing here is imported from this folder.
"""

import json
import re
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

# First: the CPU's stand-ins for pinned memory, streams and events.
import vllm.v1.worker.cpu.shm  # noqa: F401
from vllm.kernel_provider import get_kernel_provider

HERE = Path(__file__).parent
SETTINGS = json.loads((HERE / "settings.json").read_text())

provider: Any = get_kernel_provider()
if getattr(provider, "name", None) != "vllm-kunlun":
    raise RuntimeError(
        f"upstream's tests would run on {provider}, not on our kernels: install the "
        "wheels of vllm and vllm-kunlun."
    )

bind = provider.bind
launched: set[str] = set()


def recording_bind(module: str, kernel: str, parameters: tuple[str, ...]) -> Any:
    """Bind a kernel so that its launches are seen."""
    launcher = bind(module, kernel, parameters)
    if launcher is None:
        return None

    def launch(grid: tuple[int, ...], arguments: Mapping[str, Any]) -> None:
        launched.add(kernel)
        launcher(grid, arguments)

    return launch


provider.bind = recording_bind


def untouched_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return zeros that take up no memory until they are written to."""
    size = torch.Size(shape).numel() * dtype.itemsize
    return torch.from_numpy(np.zeros(size, np.uint8)).view(dtype).view(shape)


def settings_of(item: pytest.Item) -> Any:
    """Return what the table says of the file of a test."""
    return SETTINGS[item.path.relative_to(HERE).as_posix()]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what the table leaves out."""
    for item in items:
        name = item.nodeid.partition("::")[2]
        for pattern, why in settings_of(item)["left_out"].items():
            if re.fullmatch(pattern, name):
                item.add_marker(pytest.mark.skip(reason=why))
                break


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Set the variables of the file."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings_of(item)["environment"].items():
            patch.setenv(name, value)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note in the report which of our kernels a test launched."""
    launched.clear()
    try:
        return (yield)
    finally:
        item.user_properties += [("kernel", kernel) for kernel in sorted(launched)]
