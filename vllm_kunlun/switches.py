# SPDX-License-Identifier: Apache-2.0
"""The switches of the V2 runner's optimisations, read from the environment once.

Each `KUNLUN_*` variable is 0 or 1. A switch has parts that can be set alone; a part
that is not set follows its switch.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache


def _switch(what: str, default: bool = True, *, of_model: bool = False) -> bool:
    return field(default=default, metadata={"what": what, "of model": of_model})


def _part(of: str, what: str, *, of_model: bool = False) -> bool:
    metadata = {"what": what, "of": of, "of model": of_model}
    return field(default=True, metadata=metadata)


@dataclass(frozen=True)
class Switches:
    """Which optimisations run; docs/switches.md says what each does and brings."""

    hostvec: bool = _switch("host control plane in one call and one launch")
    hostvec_postupdate: bool = _part("hostvec", "post-update in one launch")
    postupd3: bool = _part("hostvec", "drafts stored and read in one launch")
    batch_meta: bool = _switch("one copy of a step's arrays, batched block tables")
    mask_fuse: bool = _switch("logits masked in one pass")
    draft_cache: bool = _switch("the drafter's state kept from step to step")
    lazy_kv: bool = _switch("draft context KV for accepted tokens only")
    spec_vec: bool = _switch("draft and verify path vectorised")
    gumbel_greedy: bool = _part("spec_vec", "greedy batches sampled by argmax alone")
    dflash_vec: bool = _part("spec_vec", "draft inputs of all groups in one launch")
    rej_xpu: bool = _part("spec_vec", "rejection sampling in one launch")
    layer_fuse: bool = _switch("the model's layers fused on a CPU", of_model=True)
    pad_weights: bool = _part("layer_fuse", "weights padded", of_model=True)
    bf16_linear: bool = _part("layer_fuse", "products in bfloat16", of_model=True)

    def __iter__(self) -> Iterator[tuple[str, bool, str]]:
        """Yield (variable, value, what it does), switches before their parts."""
        for f in fields(self):
            yield variable(f.name), getattr(self, f.name), f.metadata["what"]


def variable(name: str) -> str:
    """Return the environment variable of the switch with field name `name`."""
    return f"KUNLUN_{name.upper()}"


_FIELDS = fields(Switches)
ALL_ON = Switches(**{f.name: True for f in _FIELDS})
ALL_OFF = Switches(**{f.name: False for f in _FIELDS})


def read(environ: Mapping[str, str]) -> Switches:
    """Return the switches that `environ` sets.

    Raises:
        ValueError: a variable is set to something else than 0 or 1.
    """
    values: dict[str, bool] = {}
    for f in fields(Switches):
        default = values.get(f.metadata.get("of", ""), f.default)
        values[f.name] = _value(variable(f.name), environ, bool(default))
    return Switches(**values)


def _value(name: str, environ: Mapping[str, str], default: bool) -> bool:
    text = environ.get(name, "").strip()
    if text not in ("", "0", "1"):
        raise ValueError(
            f"{name} is {text!r}: set it to 1 (on) or 0 (off), or leave it unset."
        )
    return text == "1" if text else default


@cache
def current() -> Switches:
    """Return the switches of this process; only the first call reads them."""
    return read(os.environ)


def table(switches: Switches) -> str:
    """Return a line for each switch, and a deeper one for each part."""
    indents = {variable(f.name): "  " if "of" in f.metadata else "" for f in _FIELDS}
    return "\n".join(
        f"  {indents[name] + name:<30} {'on' if value else 'off':<4} {what}"
        for name, value, what in switches
    )
