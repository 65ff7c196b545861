# SPDX-License-Identifier: Apache-2.0
"""What the Kunlun platform answers, on a machine made up for it."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm.platforms
from fake_xpu import FakeXpu, install
from vllm.config import CompilationMode, CUDAGraphMode
from vllm.platforms import PlatformEnum
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.attention.selector import AttentionSelectorConfig

from vllm_kunlun import plugin
from vllm_kunlun.platform import detect
from vllm_kunlun.platform.kunlun import KunlunPlatform


@pytest.fixture
def xpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeXpu:
    """Make this process see two XPUs."""
    return install(monkeypatch, tmp_path, count=2)


def test_a_cpu_machine_has_no_kunlun() -> None:
    """Neither a device nor its torch is here."""
    assert not detect.device_nodes()
    assert not detect.has_vendor_torch()
    assert plugin.platform() is None


def test_nothing_is_said_of_kunlun_on_a_cpu_machine() -> None:
    """Though our plugin is asked in each of its processes."""
    script = "from vllm.platforms import current_platform as p; print(type(p).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == "CpuPlatform\n"
    assert done.stderr == ""


def test_device_and_torch_make_the_platform(xpu: FakeXpu, tmp_path: Path) -> None:
    """Each alone does not."""
    name = plugin.platform()
    assert name is not None
    assert resolve_obj_by_qualname(name) is KunlunPlatform
    del sys.modules["torch_xmlir"]
    assert plugin.platform() is None


def test_torch_without_device_is_no_platform(xpu: FakeXpu, tmp_path: Path) -> None:
    """As in a container that was given no device; the control node does not count."""
    for node in detect.device_nodes():
        node.unlink()
    assert (tmp_path / "xpuctrl").exists()
    assert plugin.platform() is None


def test_identity() -> None:
    """An out-of-tree platform whose device torch calls ``cuda``."""
    platform = KunlunPlatform()
    assert platform._enum is PlatformEnum.OOT
    assert platform.is_out_of_tree()
    assert not platform.is_cuda_alike()
    assert platform.device_type == platform.device_name == "cuda"
    assert platform.dispatch_key == "CUDA"
    assert platform.dist_backend == "nccl"
    assert platform.simple_compile_backend == "eager"
    assert not platform.support_static_graph_mode()
    assert not platform.is_sleep_mode_available()


def test_devices_and_memory_are_what_torch_says(xpu: FakeXpu) -> None:
    """Except the compute capability, which is made up to please CUDA programs."""
    platform = KunlunPlatform()
    assert platform.device_count() == 2
    assert platform.get_device_name(1) == "GPU"
    assert platform.get_device_total_memory() == xpu.total
    assert platform.num_compute_units() == 12
    assert platform.get_device_uuid(0) != platform.get_device_uuid(1)
    assert platform.get_current_memory_usage() == 0
    platform.set_device(torch.device("cuda:1"))
    assert xpu.current == 1
    platform.manual_seed_all(7)
    assert xpu.seeds == [7]
    assert torch.cuda.get_device_capability() == (8, 6)
    assert platform.get_device_capability() is None
    assert not platform.has_device_capability(80)


def test_dtypes() -> None:
    """The first is the default; others are refused in one sentence."""
    assert KunlunPlatform().supported_dtypes[0] is torch.bfloat16
    for dtype in KunlunPlatform().supported_dtypes:
        KunlunPlatform.check_if_supports_dtype(dtype)
    with pytest.raises(ValueError, match=r"torch\.float8_e4m3fn is not .* --dtype\.$"):
        KunlunPlatform.check_if_supports_dtype(torch.float8_e4m3fn)


def test_quantization_is_refused() -> None:
    """Its kernels are not here."""
    with pytest.raises(ValueError, match="Quantization 'awq' is not supported on Kun"):
        KunlunPlatform.verify_quantization("awq")


def engine_config(**changes: Any) -> Any:
    """Return the part of an engine's config that the platform reads."""
    config: dict[str, Any] = {
        "model_config.is_encoder_decoder": False,
        "model_config.use_mla": False,
        "model_config.architectures": ["Qwen3ForCausalLM"],
        "parallel_config.enable_dbo": False,
        "parallel_config.decode_context_parallel_size": 1,
        "parallel_config.worker_cls": "auto",
        "compilation_config.cudagraph_mode": CUDAGraphMode.FULL_AND_PIECEWISE,
        "lora_config": None,
        "use_v2_model_runner": True,
    }
    root = SimpleNamespace()
    for path, value in (config | changes).items():
        *parents, name = path.split(".")
        place = root
        for parent in parents:
            if not hasattr(place, parent):
                setattr(place, parent, SimpleNamespace())
            place = getattr(place, parent)
        setattr(place, name, value)
    return root


@pytest.mark.usefixtures("xpu")
def test_the_config_is_for_eager_runs_by_our_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No graphs, no compiler, spawned workers."""
    monkeypatch.delenv("VLLM_WORKER_MULTIPROC_METHOD", raising=False)
    # So that what is set there is taken back.
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "")
    monkeypatch.delenv("VLLM_WORKER_MULTIPROC_METHOD")
    config = engine_config()
    KunlunPlatform.check_and_update_config(config)
    assert config.compilation_config.mode is CompilationMode.NONE
    assert config.compilation_config.cudagraph_mode is CUDAGraphMode.NONE
    assert config.parallel_config.disable_custom_all_reduce
    worker = resolve_obj_by_qualname(config.parallel_config.worker_cls)
    from vllm.v1.worker.gpu_worker import Worker

    assert issubclass(worker, Worker)
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"


@pytest.mark.usefixtures("xpu")
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"lora_config": object()}, "does not support LoRA on Kunlun yet: choose"),
        ({"model_config.use_mla": True}, "does not support MLA"),
        ({"model_config.is_encoder_decoder": True}, "an encoder-decoder model"),
        ({"parallel_config.enable_dbo": True}, "dual-batch overlap"),
        ({"parallel_config.decode_context_parallel_size": 2}, "decode context par"),
        ({"use_v2_model_runner": False}, "Qwen3ForCausalLM would .*_V2_MODEL_RUNNER=1"),
    ],
)
def test_what_cannot_run_is_refused(change: dict[str, Any], match: str) -> None:
    """In one sentence that names it, before anything is loaded."""
    with pytest.raises(ValueError, match=match) as error:
        KunlunPlatform.check_and_update_config(engine_config(**change))
    assert "\n" not in str(error.value)


def selector(**changes: Any) -> AttentionSelectorConfig:
    """Return what a layer of a Qwen3 asks for."""
    values: dict[str, Any] = {
        "head_size": 128,
        "dtype": torch.bfloat16,
        "kv_cache_dtype": "auto",
        "block_size": None,
    }
    return AttentionSelectorConfig(**(values | changes))


@pytest.mark.parametrize(
    "changes", [{}, {"dtype": torch.float32}, {"use_non_causal": True}]
)
def test_attention_is_ours(changes: dict[str, Any]) -> None:
    """Whatever else was asked for."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    from vllm_kunlun.platform.attention import KunlunAttentionBackend

    for asked in (None, AttentionBackendEnum.FLASH_ATTN):
        name = KunlunPlatform.get_attn_backend_cls(asked, selector(**changes))
        assert resolve_obj_by_qualname(name) is KunlunAttentionBackend


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"use_mla": True}, "MLA not supported"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype not supported"),
        ({"has_sink": True}, "attention sinks not supported"),
        ({"use_sparse": True}, "sparse not supported"),
    ],
)
def test_attention_that_is_not_here_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    """The reason is vLLM's, the sentence is ours."""
    with pytest.raises(ValueError, match=rf"cannot run on Kunlun \({reason}\): choose"):
        KunlunPlatform.get_attn_backend_cls(None, selector(**changes))


@pytest.fixture
def on_kunlun(xpu: FakeXpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make vLLM's current platform Kunlun."""
    monkeypatch.setattr(vllm.platforms, "_current_platform", KunlunPlatform())


@pytest.mark.usefixtures("on_kunlun")
def test_v2s_kernels_are_ours_on_kunlun() -> None:
    """The provider is there, and is the XPU's."""
    from vllm_kunlun.platform.kernels import XpuKernels

    assert type(plugin.kernel_provider()) is XpuKernels


def test_other_platforms_keep_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an out-of-tree one that is not ours."""
    from vllm.platforms import Platform

    class Stranger(Platform):  # type: ignore[misc, unused-ignore]
        _enum = PlatformEnum.OOT
        device_type = device_name = "cpu"

    monkeypatch.setattr(vllm.platforms, "_current_platform", Stranger())
    assert plugin.kernel_provider() is None


PROBE = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import pytest
from fake_xpu import install
patch = pytest.MonkeyPatch()
install(patch, Path({dev!r}))
# As the vendor's torch has it: Triton says that it works.
from triton.backends import Backend, backends
class Driver:
    is_active = staticmethod(lambda: True)
backends.clear()
backends["cpu"] = Backend(compiler=None, driver=Driver)
from vllm.platforms import current_platform
from vllm.triton_utils import HAS_TRITON
from vllm.v1.worker.gpu import block_table, input_batch
kernels = [block_table._gather_block_tables_kernel, input_batch._post_update_kernel]
print(type(current_platform).__name__, HAS_TRITON, *(type(k).__name__ for k in kernels))
"""


def test_the_seam_holds_in_a_process_where_triton_claims_to_work(
    tmp_path: Path,
) -> None:
    """The platform and the provider are found through entry points alone."""
    script = PROBE.format(tests=str(Path(__file__).parents[1]), dev=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()[-1].split()
    assert words == ["KunlunPlatform", "True", "KernelHandle", "KernelHandle"]
