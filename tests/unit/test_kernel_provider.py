# SPDX-License-Identifier: Apache-2.0
"""The seam in the patched vLLM: kernels become handles, launches become calls."""

import subprocess
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from vllm import kernel_provider
from vllm.kernel_provider import KernelHandle, TritonWithProvider

from vllm_kunlun import __version__


class Recorder:
    """A provider that has every kernel but ``_missing_kernel``, and notes launches."""

    name = "recorder"
    vllm_version = __version__
    modules = ("covered.",)

    def __init__(self) -> None:
        self.launches: list[tuple[tuple[int, ...], dict[str, Any]]] = []

    def bind(
        self, module: str, kernel: str, parameters: tuple[str, ...]
    ) -> Callable[[tuple[int, ...], Mapping[str, Any]], None] | None:
        """Give a launcher that notes what it gets."""
        if kernel == "_missing_kernel":
            return None
        return lambda grid, arguments: self.launches.append((grid, dict(arguments)))

    def fused_stages(self, runner: Any) -> Any:
        """No runner is made here."""
        raise AssertionError

    def speculator(self, vllm_config: Any, device: Any) -> Any:
        """No runner is made here."""
        raise AssertionError


def _scale_kernel(x_ptr, n, factor=2, BLOCK: int = 4):  # type: ignore[no-untyped-def]
    raise AssertionError("a handle never runs the Python body")


def _missing_kernel(x_ptr):  # type: ignore[no-untyped-def]
    raise AssertionError("a handle never runs the Python body")


def _in_module(fn: Any, module: str) -> types.FunctionType:
    copy = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__)
    copy.__module__ = module
    return copy


def test_a_launch_is_bound_by_name() -> None:
    """Positional, keyword and default arguments end up under the kernel's names."""
    recorder = Recorder()
    handle = KernelHandle(_scale_kernel, recorder)
    handle[(3,)]("x", 7, BLOCK=8, num_warps=1)
    ((grid, arguments),) = recorder.launches
    assert grid == (3,)
    assert arguments.items() >= {"x_ptr": "x", "n": 7, "factor": 2, "BLOCK": 8}.items()


def test_a_grid_may_be_a_function_of_the_arguments() -> None:
    """As Triton allows."""
    recorder = Recorder()
    handle = KernelHandle(_scale_kernel, recorder)
    handle[lambda meta: (meta["n"] // meta["BLOCK"], 2)]("x", 8)
    assert recorder.launches[0][0] == (2, 2)


def test_a_missing_kernel_fails_at_its_launch_by_name() -> None:
    """Not when it is defined, and not by falling back to Triton."""
    handle = KernelHandle(_missing_kernel, Recorder())
    with pytest.raises(
        NotImplementedError, match=r"'recorder' has no .*_missing_kernel"
    ):
        handle[(1,)]("x")


def test_a_handle_is_no_function() -> None:
    """Calling a kernel without a grid is said to be what it is."""
    with pytest.raises(RuntimeError, match=r"launch it as kernel\[grid\]"):
        KernelHandle(_scale_kernel, Recorder())("x", 1)


def test_only_covered_modules_are_taken_over() -> None:
    """The rest of vLLM keeps the Triton it has, options and all."""
    taken: list[tuple[object, dict[str, Any]]] = []
    triton = types.ModuleType("triton")
    triton.jit = lambda fn, **options: taken.append((fn, options))  # type: ignore[attr-defined]
    triton.cdiv = "triton's"  # type: ignore[attr-defined]
    seam = TritonWithProvider(triton, Recorder())
    ours = _in_module(_scale_kernel, "covered.module")
    theirs = _in_module(_scale_kernel, "elsewhere")
    assert isinstance(seam.jit(ours), KernelHandle)
    assert isinstance(seam.jit(do_not_specialize=["n"])(ours), KernelHandle)
    assert taken == []
    seam.jit(do_not_specialize=["n"])(theirs)
    assert taken == [(theirs, {"do_not_specialize": ["n"]})]
    assert seam.cdiv == "triton's"


@pytest.mark.parametrize(("n", "power"), [(0, 0), (1, 1), (2, 2), (3, 4), (1025, 2048)])
def test_next_power_of_2(n: int, power: int) -> None:
    """The placeholder for Triton lacks it."""
    assert TritonWithProvider.next_power_of_2(n) == power


def test_a_second_provider_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two providers cannot both run a kernel."""
    monkeypatch.setattr(kernel_provider, "_provider", Recorder())
    with pytest.raises(RuntimeError, match="'recorder' cannot be registered beside"):
        kernel_provider._install(Recorder())


def test_a_provider_for_another_vllm_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both versions are named."""
    monkeypatch.setattr(kernel_provider, "_provider", None)
    stranger = Recorder()
    stranger.vllm_version = "0.24.0+kunlun.3"
    with pytest.raises(RuntimeError, match=r"built for vllm 0\.24\.0\+kunlun\.3 but"):
        kernel_provider._install(stranger)


def test_registering_after_triton_utils_is_refused() -> None:
    """By then the kernels are decorated."""
    import vllm.triton_utils  # noqa: F401

    with pytest.raises(RuntimeError, match="comes too late"):
        kernel_provider.register_kernel_provider(Recorder())


PROBE = """
import sys
{before}
from vllm.triton_utils import HAS_TRITON
from vllm.v1.worker.gpu import block_table, input_batch
kernels = [block_table._gather_block_tables_kernel, input_batch._post_update_kernel]
print(HAS_TRITON, *(type(kernel).__name__ for kernel in kernels))
"""
WITHOUT_TRITON = "sys.modules['triton'] = None"
WITH_TRITON = """
from triton.backends import Backend, backends
class Driver:
    is_active = staticmethod(lambda: True)
backends["cpu"] = Backend(compiler=None, driver=Driver)
"""


@pytest.mark.parametrize(
    ("before", "has_triton"),
    [("", "False"), (WITHOUT_TRITON, "False"), (WITH_TRITON, "True")],
    ids=["inactive", "not installed", "claims to work"],
)
def test_triton_makes_no_difference(before: str, has_triton: str) -> None:
    """V2's kernels are ours whatever Triton says; HAS_TRITON says what it said."""
    script = PROBE.format(before=before)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == [has_triton, *["KernelHandle"] * 2]
