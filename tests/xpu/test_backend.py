# SPDX-License-Identifier: Apache-2.0
"""Which kernels a launch goes to, and what reaches the user when one is wrong."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from vllm_kunlun import backend
from vllm_kunlun.kernels import KERNELS


@pytest.fixture(autouse=True)
def host_afterwards() -> Iterator[None]:
    """Leave the process as it was."""
    yield
    backend.use("host")


def count(rows: list[int]) -> list[int]:
    """Add each request's query to its row of the state, by an op; return the state."""
    state = torch.zeros(4, dtype=torch.int32)
    torch.ops.vllm_kunlun.post_update_num_computed_tokens(
        torch.tensor(rows, dtype=torch.int32),
        state,
        torch.arange(len(rows) + 1, dtype=torch.int32),
        len(rows),
    )
    return list(state.tolist())


def test_backends() -> None:
    """The simulator works where it is asked for, and only there."""
    before = backend.simulated_launches()
    backend.use("host")
    assert count([0, 2]) == [1, 0, 1, 0]
    assert backend.simulated_launches() == before
    for machine in ("sim", "sim:1x1", "sim:3x5:7"):
        backend.use(machine)
        assert count([0, 2]) == [1, 0, 1, 0]
    assert backend.simulated_launches() == before + 3
    backend.use("")
    count([0])
    assert backend.simulated_launches() == before + 3


@pytest.mark.parametrize(
    "text", ["xpu", "simx", "sim:12", "sim:0x64", "sim:1x65", "sim:1x64:", "sim:1x64:a"]
)
def test_no_such_backend(text: str) -> None:
    """What cannot be is refused, with the value and what would do."""
    with pytest.raises(ValueError, match=rf"must be host, sim, or .*, but is '{text}'"):
        backend.use(text)


def test_environment() -> None:
    """A process begins with the backend of its environment."""
    program = "from vllm_kunlun import backend, ops; import test_backend; ops.load(); "
    program += "test_backend.count([1]); print(backend.simulated_launches())"
    environment = os.environ | {
        "VLLM_KUNLUN_BACKEND": "sim:1x64",
        "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path]),
    }
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "1", done.stderr


def test_fault() -> None:
    """Two requests with one row of the state, which the contract rules out."""
    backend.use("host")
    assert count([3, 3]) == [0, 0, 0, 2]
    backend.use("sim:12x64")
    with pytest.raises(
        RuntimeError,
        match=r"requests\.xpu:\d+: post_update_num_computed_tokens, "
        r"core 0 of cluster 1 \(12x64, schedule 0\), reads bytes \[12, 16\) "
        r"of num_computed_tokens_ptr, "
        r"which core 0 of cluster 0 wrote in line \d+: no barrier orders",
    ):
        count([3, 3])
    assert count([0, 1]) == [1, 1, 0, 0]


def test_ops_with_a_kernel() -> None:
    """Every op has a kernel for the XPU, but for those that have no use there."""
    on_xpu, on_host = backend.xpu_kernels(), backend.without_xpu_kernel()
    # It works on host memory; for the layers there is the vendor's own.
    assert on_host == {"plan_step", "rms_norm", "silu_and_mul", "linear"}
    assert on_xpu >= set(KERNELS.values())
    assert len(on_xpu) > 40
