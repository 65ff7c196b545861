# SPDX-License-Identifier: Apache-2.0
"""What is compared: a runner for each way of running its stages."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from vllm.kernel_provider import KernelHandle
from vllm.v1.worker.gpu.model_runner_v2 import FusedStages, ModelRunnerV2

from vllm_kunlun import switches
from vllm_kunlun.bench.step.native import NATIVE, NativeBlockTables
from vllm_kunlun.launch import KunlunKernels
from vllm_kunlun.switches import ALL_OFF, ALL_ON, Switches, variable


@dataclass(frozen=True)
class Column:
    """One way to run a step."""

    label: str
    switches: Switches
    native: bool = False
    """Whether the kernels are torch code."""


def all_columns() -> list[Column]:
    """Return all on, all off, each switch and part alone, and torch code."""
    alone = [
        Column(variable(f.name).removeprefix("KUNLUN_"), _alone(f.name))
        for f in fields(Switches)
        # The null model has no layers.
        if not f.metadata.get("of model")
    ]
    return [
        Column("on", ALL_ON),
        Column("off", ALL_OFF),
        *alone,
        Column("torch", ALL_OFF, native=True),
    ]


def choose_columns(labels: list[str], sampling: str) -> list[Column]:
    """Return the columns named, or all; "off" is always there.

    Raises:
        ValueError: there is no such column, or it cannot sample so.
    """
    if sampling == "masked" and "torch" in labels:
        raise ValueError(
            "The column 'torch' has no torch code for penalties and biases: choose "
            "--sampling greedy or seeded, or leave the column out."
        )
    columns = {column.label: column for column in all_columns()}
    for label in labels:
        if label not in columns:
            raise ValueError(
                f"There is no column {label!r}: choose of {', '.join(columns)}."
            )
    if sampling == "masked":
        del columns["torch"]
    return [c for c in columns.values() if not labels or c.label in (*labels, "off")]


def _alone(name: str) -> Switches:
    """Return what the environment gives with one variable 1 and the switches 0.

    A switch takes its parts along; a part comes without its switch.
    """
    off = {variable(f.name): "0" for f in fields(Switches) if "of" not in f.metadata}
    return switches.read({**off, variable(name): "1"})


class Activation:
    """Makes a column's switches the process's, its kernels those of all launches."""

    def __init__(self, column: Column) -> None:
        self.variables = {name: str(int(on)) for name, on, _ in column.switches}
        self.native = column.native
        self.launchers: dict[KernelHandle, Any] = {}

    def find_kernels(self) -> None:
        """Choose the launchers of all kernels in modules that are imported."""
        provider = KunlunKernels()
        for handle in handles():
            module, kernel = handle.fn.__module__, handle.fn.__name__
            if self.native:
                launcher = NATIVE.get((module, kernel), _without_torch_code(kernel))
            else:
                launcher = provider.bind(module, kernel, handle.parameters)
            if launcher is not None:
                self.launchers[handle] = launcher

    @contextmanager
    def on(self) -> Iterator[None]:
        """Run a column's code inside."""
        saved = {name: os.environ.get(name) for name in self.variables}
        os.environ.update(self.variables)
        switches.current.cache_clear()
        for handle, launcher in self.launchers.items():
            # Where `KernelHandle` keeps what it has bound.
            handle.__dict__["_launcher"] = launcher
        try:
            yield
        finally:
            for handle in self.launchers:
                handle.__dict__.pop("_launcher", None)
            for name, value in saved.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
            switches.current.cache_clear()


def use_native_tables(runner: ModelRunnerV2) -> None:
    """Give a runner of a native column block tables without tables of addresses."""
    runner.fused = FusedStages(make_block_tables=NativeBlockTables)


def handles() -> list[KernelHandle]:
    """Return the kernels of all modules that are imported."""
    found = {
        id(value): value
        for name, module in list(sys.modules.items())
        if name.startswith(KunlunKernels.modules)
        for value in vars(module).values()
        if isinstance(value, KernelHandle)
    }
    return list(found.values())


def _without_torch_code(kernel: str) -> Any:
    def launch(grid: Any, arguments: Any) -> None:
        raise NotImplementedError(
            f"The benchmark has no torch code for {kernel}: leave the column 'torch' "
            "out."
        )

    return launch
