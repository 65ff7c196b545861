# SPDX-License-Identifier: Apache-2.0
"""Which ops are called."""

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Calls(TorchDispatchMode):
    """Counts the ops that reach a backend while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        """By the op's name, such as ``aten::add``; overloads count as one."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Count an op, then run it."""
        self.names[func._schema.name] += 1
        return func(*args, **(kwargs or {}))
