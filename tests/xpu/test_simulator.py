# SPDX-License-Identifier: Apache-2.0
"""The simulator catches every kind of fault, and lets right kernels pass."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

HERE = Path(__file__).parent / "faults"
CSRC = Path(__file__).parents[2] / "csrc"
GEOMETRIES = ["1 1", "1 64", "12 64", "3 5"]
SCHEDULES = [0, 1, 2**63]

RIGHT = ["right", "async_right", "shared_right", "int64_right", "global_right"]

# Kernel -> its fault, and the line of faults/kernels.xpu, as a text in it.
WRONG: dict[str, tuple[str, str]] = {
    "no_fence_before_copy": (
        r"copies bytes \[0, 256\) of the array of kernels\.xpu:\d+, of which the first "
        "was stored without a fence since",
        "LM2GM(x, out + i, kChunk * 4);",
    ),
    "async_read_before_fence": (
        r"reads bytes \[0, 4\) of the array of \S+ before a fence completes the copy",
        "x[i] = 2.0f * x[i];",
    ),
    "async_source_overwritten": (
        r"writes bytes \[0, 4\) of the array of \S+ before a fence completes the copy",
        "x[0] = 0.0f;",
    ),
    "async_never_fenced": (
        "returns before a fence completes this copy",
        "LM2GM_ASYNC(x, out + i, kChunk * 4);",
    ),
    "local_memory_too_large": (
        "has arrays of 8192 bytes, but local memory has 6144",
        "LmArray<float, 2048> x;",
    ),
    "shared_memory_too_large": (
        "has shared arrays of 262208 bytes, but shared memory has 262144",
        "SmArray<float, 65537> x;",
    ),
    "local_out_of_range": (
        r"reads bytes \[256, 260\) of the array of \S+, which has 256 bytes",
        "x[i] = 2.0f * x[i];",
    ),
    "local_never_written": (
        r"reads bytes \[128, 132\) of the array of \S+, of which the first was never",
        "x[i] = 2.0f * x[i];",
    ),
    "array_gone": (
        r"reads bytes \[0, 4\) of the array of \S+, which is not this core's any more",
        "kept[j]",
    ),
    "global_load_out_of_range": (
        r"reads bytes \[1024, 1028\) of in, which has 1024 bytes",
        "in[i + j + 1]",
    ),
    "copy_out_of_range": (
        r"copies bytes \[768, 1040\) of in, which has 1024 bytes",
        "(kChunk + 4) * 4);",
    ),
    "copy_of_nothing": ("copies 0 bytes", "(i < n ? kChunk : 0) * 4);"),
    "low_half_of_int64": (
        r"reads bytes \[\d+, \d+\) of pos, whose elements have 8 bytes",
        "in[pos[i + j]]",
    ),
    "null_pointer": ("reads through a null pointer", "in[pos[i + j]]"),
    "shared_without_barrier": (
        r"\w+ bytes \[\d+, \d+\) of the shared array of \S+, which (another core has "
        r"read|core \d+ of cluster 0 wrote in line \d+) without a barrier in between",
        "x[",
    ),
    "shared_without_fence": (
        r"reads bytes \S+ \S+ of the shared array of \S+, which core \d+ of cluster 0 "
        r"wrote in line \d+ without a fence before the barrier",
        "out[at + j] = 2.0f * x[at + j];",
    ),
    "shared_never_written": (
        r"reads bytes \[\d+, \d+\) of the shared array of \S+, which nobody",
        "const float value = x[at + j];",
    ),
    "barrier_of_one_core": (
        r"waits at a barrier for core \d+ of cluster \d+, which has returned",
        "if (core_id() == 0) sync_cluster();",
    ),
    "barrier_of_half_the_cores": (
        r"waits at a barrier while core \d+ of cluster \d+ waits at that of kernels",
        "    sync_cluster();",
    ),
    "return_before_barrier": (
        r"waits at a barrier for core \d+ of cluster \d+, which has returned",
        "  sync_cluster();",
    ),
    "two_write_one": (
        r"writes bytes \[0, 4\) of out, which core \d+ of cluster \d+ wrote",
        "out[",
    ),
    "two_add_to_one": (r"\w+ bytes \[0, 4\) of out, which", "out["),
    "clusters_share_global": (
        r"\w+ bytes \[\d+, \d+\) of out, which (core \d+ of cluster \d+ wrote in line "
        r"\d+: no barrier orders|another core has read)",
        "out[",
    ),
    "global_without_fence": (
        r"reads bytes \[\d+, \d+\) of out, which core \d+ of cluster 0 wrote in line "
        r"\d+ without a fence before the barrier",
        "out[at + j] = out[at + j]",
    ),
    "order_of_cores": (r"writes bytes \[0, 4\) of out, which core", "out[0] ="),
}
# One core alone, or one cluster, makes no mistake of these.
NEEDS_CORES = {
    "barrier_of_one_core",
    "barrier_of_half_the_cores",
    "return_before_barrier",
    "shared_without_barrier",
    "shared_without_fence",
    "shared_never_written",
    "two_write_one",
    "two_add_to_one",
    "global_without_fence",
    "order_of_cores",
}
NEEDS_CLUSTERS = {"clusters_share_global"}

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run a kernel of faults/ and return what its program says.

    It is one process for all of them, so that each also shows that the machine is
    sound after a fault.
    """
    program = tmp_path_factory.mktemp("faults") / "faults"
    command = ["c++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]
    command += ["-DVLLM_KUNLUN_SIMULATED", f"-I{CSRC}", f"-I{HERE}", "-o", str(program)]
    command += [str(p) for p in sorted((CSRC / "xpu" / "sim").glob("*.cpp"))]
    command += [str(HERE / "main.cpp"), "-x", "c++", str(HERE / "kernels.xpu")]
    subprocess.run(command, check=True)
    with subprocess.Popen(
        ["stdbuf", "-oL", program], stdin=PIPE, stdout=PIPE, text=True
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def run(
            kernel: str, geometry: str, schedule: int, finds_races: bool = True
        ) -> str:
            print(kernel, geometry, schedule, int(finds_races), file=stdin, flush=True)
            return stdout.readline().strip()

        yield run


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kernel", RIGHT)
def test_right_kernels_pass(run: Run, kernel: str, geometry: str) -> None:
    """On every machine, in every order."""
    for schedule in SCHEDULES:
        # One cluster's cores alone share global memory in global_right.
        if kernel == "global_right" and geometry in ("1 1", "3 5"):
            continue
        assert run(kernel, geometry, schedule) == "result: 2"


@pytest.mark.parametrize("kernel", WRONG)
def test_wrong_kernels_are_caught(run: Run, kernel: str) -> None:
    """In every order, with the kernel, the core and the line."""
    fault, text = WRONG[kernel]
    geometry = "12 64" if kernel in NEEDS_CLUSTERS else "1 64"
    for schedule in SCHEDULES:
        said = run(kernel, geometry, schedule)
        found = re.fullmatch(
            r"fault: kernels\.xpu:(\d+): (\w+), core \d+ of cluster \d+ "
            rf"\({geometry.replace(' ', 'x')}, schedule {schedule}\), (.*)\.",
            said,
        )
        assert found is not None, said
        line, name, what = found.groups()
        assert name == kernel
        assert re.match(fault, what), what
        assert text in (HERE / "kernels.xpu").read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize("kernel", sorted(WRONG.keys() - NEEDS_CORES - NEEDS_CLUSTERS))
def test_one_core_is_enough(run: Run, kernel: str) -> None:
    """Faults of one core are found on a machine of one core."""
    assert run(kernel, "1 1", 0).startswith("fault: ")


def test_schedules_differ(run: Run) -> None:
    """A result that depends on the order of cores shows in another schedule."""
    results = {run("order_of_cores", "12 64", s, False) for s in range(20)}
    assert len(results) > 1
