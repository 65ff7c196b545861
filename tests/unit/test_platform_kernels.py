# SPDX-License-Identifier: Apache-2.0
"""Ops on Kunlun: the XPU's kernel, the host's through copies, or a sentence."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_xpu import FakeXpu, install
from fake_xpu.on_cpu import DeviceOnCpu

from vllm_kunlun import ops
from vllm_kunlun.platform import kernels, native_ops


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    """Make a namespace of ops for one test."""
    library = torch.library.Library("made_up", "DEF")
    yield library
    library._destroy()


def define(library: torch.library.Library) -> Any:
    """Define an op that adds `x` to every second column of `out`."""
    library.define("add(Tensor(a!) out, int stride, Tensor x, Tensor? y) -> ()")

    def add(out: torch.Tensor, stride: int, x: torch.Tensor, y: Any) -> None:
        # As kernels do, which know a tensor's rows by the stride that they are told.
        rows = out.as_strided((2, 3), (stride, 1), out.storage_offset())
        rows += x

    library.impl("add", add, "CPU")
    return torch.ops.made_up.add.default


def test_the_host_works_on_copies(library: torch.library.Library) -> None:
    """Strides are kept, what is written comes back, and nothing else changes."""
    through = kernels.ThroughHost(define(library))
    whole = torch.zeros(2, 8)
    x = torch.tensor([1.0, 2.0, 3.0])
    through(whole[:, 2:5], 8, x, None)
    assert whole.tolist() == [[0, 0, 1, 2, 3, 0, 0, 0]] * 2
    assert x.tolist() == [1, 2, 3]


def test_lists_of_tensors_are_copied_too(library: torch.library.Library) -> None:
    """Read and written ones."""
    library.define("double(Tensor(a!)[] out, Tensor[] x) -> ()")

    def double(out: list[torch.Tensor], x: list[torch.Tensor]) -> None:
        for o, i in zip(out, x, strict=True):
            o.copy_(2 * i)
            i.zero_()

    library.impl("double", double, "CPU")
    out, x = [torch.zeros(1), torch.zeros(2)], [torch.ones(1), torch.ones(2)]
    kernels.ThroughHost(torch.ops.made_up.double.default)(out, x)
    assert [o.tolist() for o in out] == [[2], [2, 2]]
    assert [i.tolist() for i in x] == [[1], [1, 1]]


def test_a_copy_is_not_the_tensor() -> None:
    """A device's tensor is not changed before the op has succeeded."""
    tensor = torch.arange(6.0).view(2, 3).t()
    copy = kernels.copy_to_host(tensor)
    assert copy.stride() == tensor.stride()
    assert copy.data_ptr() != tensor.data_ptr()
    assert copy.equal(tensor)


def test_every_op_has_something_to_do_with_device_tensors() -> None:
    """Without the XPU's library: the host's kernel, or a sentence."""
    backends, _ = kernels.load()
    assert set(backends.values()) == {"host, through copies", "none"}
    assert {n for n, b in backends.items() if b == "none"} == kernels.FOLLOW_ADDRESSES
    # From now on there is a kernel for the device's tensors.
    assert all(kernels.backend_of(name) == "XPU" for name in backends)


def test_addresses_are_not_for_the_host() -> None:
    """Such an op says what it needs when it is called, and not before."""
    with pytest.raises(NotImplementedError) as error:
        kernels.Missing("gather_block_tables")("any", "arguments")
    assert str(error.value).startswith("vllm_kunlun::gather_block_tables needs its XPU")
    assert "docs/kunlun.md" in str(error.value)


def test_every_op_that_takes_addresses_is_listed() -> None:
    """By upstream's naming, and by what is known of the rest."""
    ops.load()
    everything = kernels._all_ops()
    assert everything.keys() >= kernels.FOLLOW_ADDRESSES
    tables = {
        name
        for name, op in everything.items()
        for argument in op._schema.arguments
        if argument.name.endswith(("_ptrs", "_addrs_ptr", "_addrs"))
    }
    assert tables <= kernels.FOLLOW_ADDRESSES
    assert tables


def test_a_library_that_does_not_load_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where XRE's libraries are not found."""
    library = tmp_path / "libvllm_kunlun_xpu.so"
    library.write_text("no library")
    monkeypatch.setattr(ops, "XPU_LIBRARY", library)
    with pytest.raises(ImportError, match=r"xpu\.so does not load \(.*LD_LIBRARY_PATH"):
        ops.load.__wrapped__()


def test_a_launch_is_bound_by_name() -> None:
    """As on a CPU; what is done is up to the tensors' device."""
    launch = kernels.XpuKernels().bind(
        "vllm.v1.worker.gpu.input_batch",
        "_get_num_sampled_and_rejected_kernel",
        (
            "num_sampled_ptr",
            "num_rejected_ptr",
            "seq_lens_ptr",
            "cu_num_logits_ptr",
            "idx_mapping_ptr",
            "prefill_len_ptr",
        ),
    )
    assert launch is not None
    ints = {
        "num_sampled_ptr": [1, 2],
        "num_rejected_ptr": [9, 9],
        "seq_lens_ptr": [5, 6],
        "cu_num_logits_ptr": [0, 1, 4],
        "idx_mapping_ptr": [1, 0],
        "prefill_len_ptr": [3, 4],
    }
    tensors = {k: torch.tensor(v, dtype=torch.int32) for k, v in ints.items()}
    launch((2,), tensors)
    # Two requests with one and three logits, of which one and two tokens were taken.
    assert tensors["num_rejected_ptr"].tolist() == [0, 1]


def test_rms_norm_with_a_weight_for_each_layer() -> None:
    """As DSpark's draft model calls it."""
    torch.manual_seed(0)
    x, weight = torch.randn(3, 5, 2, 16), torch.randn(3, 16)
    result = torch.empty_like(x)
    native_ops.rms_norm(result, x, weight, 1e-6)
    for layer in range(3):
        one = torch.nn.functional.rms_norm(x[layer], (16,), weight[layer], 1e-6)
        torch.testing.assert_close(result[layer], one)


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("rotary", [32, 16])
def test_rotary_embedding_is_vllms(is_neox: bool, rotary: int) -> None:
    """In place and flat, against vLLM's own way through torch."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

    with set_current_vllm_config(VllmConfig()):
        rope = RotaryEmbedding(32, rotary, 64, 1e4, is_neox, torch.float32)
    torch.manual_seed(0)
    positions = torch.randint(0, 64, (7,))
    query, key = torch.randn(7, 4 * 32), torch.randn(7, 2 * 32)
    expected = rope.forward_native(positions, query.clone(), key.clone())
    before = query.clone()
    native_ops.rotary_embedding(positions, query, key, 32, rope.cos_sin_cache, is_neox)
    torch.testing.assert_close(query, expected[0])
    torch.testing.assert_close(key, expected[1])
    native_ops.rotary_embedding(
        positions, query, None, 32, rope.cos_sin_cache, is_neox, inverse=True
    )
    torch.testing.assert_close(query, before)


def test_native_ops_do_not_replace_compiled_ones() -> None:
    """The host's build of vLLM has its own; Kunlun's has none."""
    from vllm.platforms.cpu import CpuPlatform

    # Which library it is depends on the CPU, and two of them abort the process.
    CpuPlatform.import_kernels()
    compiled = torch.ops._C.rms_norm
    native_ops.register()
    assert torch.ops._C.rms_norm is compiled


@pytest.fixture
def xpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeXpu]:
    """Make this process see an XPU that computes."""
    fake = install(monkeypatch, tmp_path)
    with DeviceOnCpu():
        yield fake


@pytest.mark.usefixtures("xpu")
def test_buffers_are_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device has a copy of its own, taken anew by each write."""
    from vllm.v1.worker.gpu import buffer_utils

    from vllm_kunlun.platform import buffers

    for name in ("UvaBuffer", "UvaBufferPool"):
        monkeypatch.setattr(buffer_utils, name, getattr(buffer_utils, name))
    buffers.install()
    backed = buffer_utils.UvaBackedTensor(4, torch.int32, max_concurrency=2)
    backed.np[:] = [1, 2, 3, 4]
    first = backed.copy_to_uva()
    backed.np[:] = 0
    assert first.tolist() == [1, 2, 3, 4]
    second = backed.copy_to_uva(2)
    assert second.tolist() == [0, 0]
    # The step before may still be running.
    assert first.tolist() == [1, 2, 3, 4]
    pool = buffer_utils.UvaBufferPool(3, torch.int64, max_concurrency=2)
    for source in ([5, 6], np.array([5, 6]), torch.tensor([5, 6])):
        assert pool.copy_to_gpu(source).tolist() == [5, 6]
    staged = buffer_utils.StagedWriteTensor(
        (2, 3), torch.int32, torch.device("cuda:0"), uva_instead_of_gpu=True
    )
    assert staged.gpu.tolist() == [[0, 0, 0]] * 2
