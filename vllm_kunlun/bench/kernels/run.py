# SPDX-License-Identifier: Apache-2.0
"""A run over cases and sizes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vllm_kunlun.bench.kernels.case import Case, Size
from vllm_kunlun.bench.kernels.timing import Row, measure
from vllm_kunlun.terminal import progress


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    cases: Sequence[Case]
    requests: Sequence[int]
    vocabularies: Sequence[int]
    seconds: float

    def cells(self) -> Iterator[tuple[Case, Size]]:
        """Yield each case at each size that it depends on."""
        for case in self.cases:
            vocabularies = self.vocabularies if case.matrices else [None]
            for requests in self.requests:
                for vocabulary in vocabularies:
                    yield case, Size(requests, vocabulary)


def run(plan: Plan) -> tuple[list[Row], bool]:
    """Measure all cells; return the rows and whether all of them were reached.

    Raises:
        RuntimeError: ours and a baseline do not agree.
    """
    cells = list(plan.cells())
    rows: list[Row] = []
    with progress() as say:
        try:
            for i, (case, size) in enumerate(cells, start=1):
                say(f"{i} of {len(cells)}: {case.name}, {size.requests}")
                rows.append(measure(case, size, plan.seconds))
        except KeyboardInterrupt:
            return rows, False
    return rows, True
