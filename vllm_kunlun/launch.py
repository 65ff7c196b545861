# SPDX-License-Identifier: Apache-2.0
"""The kernel provider: V2's kernel launches become calls of our torch ops.

An op's schema names the kernel's parameters as upstream spells them, so binding
needs no adapter: each argument is taken by name from the launch, and ``grid_x``
and ``grid_y`` (for kernels that know a size only from their grid) from the grid.
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from vllm_kunlun import __version__, ops, switches

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.worker.gpu.model_runner_v2 import FusedStages, ModelRunnerV2
    from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

Grid = tuple[int, ...]
Launcher = Callable[[Grid, Mapping[str, Any]], None]


class KunlunKernels:
    """`vllm.kernel_provider.KernelProvider` on top of ``torch.ops.vllm_kunlun``."""

    name = "vllm-kunlun"
    vllm_version = __version__
    modules = (
        "vllm.v1.worker.gpu.",
        "vllm.v1.worker.mamba_utils",
        "vllm.v1.worker.utils",
    )

    def bind(
        self, module: str, kernel: str, parameters: tuple[str, ...]
    ) -> Launcher | None:
        """Return the launcher of `kernel`, or None where we have no op for it.

        Raises:
            RuntimeError: the op asks for a parameter that the kernel does not have.
        """
        op = ops.find_op(module, kernel)
        if op is None:
            return None
        launch = make_launcher(op, parameters)
        for flag, overload in ops.flagged_overloads(op).items():
            launch = choose(flag, make_launcher(overload, parameters), launch)
        return launch

    def fused_stages(self, runner: "ModelRunnerV2") -> "FusedStages":
        """Return the stages of `runner`'s step that the switches let us run."""
        from vllm.logger import init_logger

        from vllm_kunlun.step.stages import make_stages

        chosen = switches.current()
        init_logger(f"vllm.{__name__}").info_once(
            "Switches of Model Runner V2:\n%s", switches.table(chosen)
        )
        return make_stages(runner, chosen)

    def speculator(
        self, vllm_config: "VllmConfig", device: "torch.device"
    ) -> "BaseSpeculator | None":
        """Return our drafter for `vllm_config`, or None for upstream's."""
        config = vllm_config.speculative_config
        if config is None or config.method != "dspark":
            return None
        if config.drafts_from_tokens():
            from vllm_kunlun.draft.ngram.speculator import NgramSpeculator

            keeps_index = switches.current().draft_cache
            return NgramSpeculator(vllm_config, device, keeps_index=keeps_index)
        from vllm_kunlun.draft.dspark.speculator import FusedDSparkSpeculator

        return FusedDSparkSpeculator(vllm_config, device, switches.current())


def choose(flag: str, when: Launcher, otherwise: Launcher) -> Launcher:
    """Return a launcher that is `when` where the kernel's constexpr `flag` is true."""

    def launch(grid: Grid, arguments: Mapping[str, Any]) -> None:
        (when if arguments[flag] else otherwise)(grid, arguments)

    return launch


def make_launcher(op: Any, parameters: tuple[str, ...]) -> Launcher:
    """Return a function that calls `op` with a launch's arguments, by name."""
    names = [argument.name for argument in op._schema.arguments]
    unknown = set(names) - set(parameters) - {"grid_x", "grid_y"}
    if unknown:
        raise RuntimeError(
            f"{op} takes {', '.join(sorted(unknown))}, which the kernel does not have: "
            "vllm-kunlun and vllm are not of one build."
        )
    arguments_of = itemgetter(*names)
    wants_grid = not {"grid_x", "grid_y"}.isdisjoint(names)

    def launch(grid: Grid, arguments: Mapping[str, Any]) -> None:
        if wants_grid:
            grid_y = grid[1] if len(grid) > 1 else 1
            arguments = {**arguments, "grid_x": grid[0], "grid_y": grid_y}
        op(*arguments_of(arguments))

    return launch
