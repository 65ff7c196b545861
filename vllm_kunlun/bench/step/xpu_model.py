# SPDX-License-Identifier: Apache-2.0
"""What a step's launches, copies and syncs would cost on an XPU, as an estimate.

Public figures for Kunlun chips could not be found for any of these, so the defaults
are guesses, and each can be set. The model adds up what waits for the host's calls: it
knows neither how long kernels run nor what overlaps, so it compares control planes and
predicts no throughput. An op of ours counts as one launch, though a few are several on
the XPU (docs/simulator.md).
"""

from dataclasses import dataclass, field, fields, replace

from vllm_kunlun.bench.step.count import Counts


def _cost(default: float, unit: str, source: str) -> float:
    metadata = {"unit": unit, "source": source}
    value: float = field(default=default, metadata=metadata)
    return value


@dataclass(frozen=True)
class Costs:
    """What one of each costs."""

    launch: float = _cost(
        5.0, "µs", "guess: an asynchronous launch on accelerators takes a few µs"
    )
    dispatch: float = _cost(
        4.0, "µs", "guess: a torch op on the way to a launch, in Python and C++"
    )
    copy: float = _cost(10.0, "µs", "guess: setting up a DMA transfer")
    bandwidth: float = _cost(
        16.0, "GB/s", "guess: half of what PCIe 4.0 x16 carries, as copies are small"
    )
    uva: float = _cost(
        10.0,
        "µs",
        "guess: without memory that both sides address, such a write is a copy",
    )
    sync: float = _cost(
        30.0, "µs", "guess: a round trip that finds the device's queue empty"
    )


def set_costs(settings: list[str]) -> Costs:
    """Return the costs with some set, each as ``name=value``.

    Raises:
        ValueError: a setting has no such form, or there is no such cost.
    """
    names = [f.name for f in fields(Costs)]
    values: dict[str, float] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if name not in names or not 0 <= value < float("inf"):
            raise ValueError(
                f"--cost must be NAME=NUMBER with one of {', '.join(names)}, such as "
                f"launch=5, but is {setting!r}."
            )
        values[name] = value
    if values.get("bandwidth") == 0:
        raise ValueError("--cost bandwidth must be above 0, but is 0.")
    return replace(Costs(), **values)


def estimate(counts: Counts, costs: Costs) -> float:
    """Return microseconds for what was counted."""
    launches = counts.launches + counts.torch_kernels
    copies = counts.copies + counts.copies_back
    moved = (counts.bytes + counts.uva_bytes) / (costs.bandwidth * 1e3)
    return (
        launches * costs.launch
        + counts.dispatches * costs.dispatch
        + copies * costs.copy
        + counts.uva_writes * costs.uva
        + counts.syncs * costs.sync
        + moved
    )
