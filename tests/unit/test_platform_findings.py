# SPDX-License-Identifier: Apache-2.0
"""What doctor says of Kunlun, here and on made-up machines."""

import sys
from pathlib import Path

import pytest
import torch
import vllm.platforms
from fake_xpu import install
from fake_xpu.kunlun_ops import make_module
from test_platform_vendor import forget  # noqa: F401

from vllm_kunlun.platform import findings
from vllm_kunlun.platform.kunlun import KunlunPlatform

SMI = """#!/bin/sh
echo '| XPU-SMI           Driver Version: 515.58       XPU-RT Version: N/A      |'
"""


def report() -> dict[str, tuple[str, bool]]:
    """Return the findings by what they are of."""
    return {f.what: (f.text, f.fine) for f in findings.examine()}


def not_fine() -> list[str]:
    """Return what is not as it must be."""
    return [f.what for f in findings.examine() if not f.fine]


def test_a_cpu_machine_is_one_line() -> None:
    """Nothing is wrong with it."""
    assert report() == {"Kunlun": ("no device (/dev/xpu*) and no torch for one", True)}


def test_half_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device without its torch, and the other way round."""
    install(monkeypatch, tmp_path)
    monkeypatch.delitem(sys.modules, "torch_xmlir")
    assert not_fine() == ["torch_xmlir"]
    install(monkeypatch, tmp_path)
    (tmp_path / "xpu0").unlink()
    assert not_fine() == ["Kunlun devices"]
    assert "/dev/xpuctrl" in report()["Kunlun devices"][0]


def test_vllm_may_take_another_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where VLLM_PLUGINS leaves us out."""
    install(monkeypatch, tmp_path)
    assert report()["Kunlun platform"] == (
        f"vLLM took {type(vllm.platforms.current_platform).__name__}: unset "
        "VLLM_PLUGINS",
        False,
    )


@pytest.mark.usefixtures("forget")
def test_a_whole_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Driver, toolchain, devices, the vendor's kernels and ours."""
    install(monkeypatch, tmp_path, count=2)
    monkeypatch.setattr(vllm.platforms, "_current_platform", KunlunPlatform())
    module, _ = make_module()
    del module.silu_and_mul
    monkeypatch.setitem(sys.modules, "kunlun_ops", module)
    tool = tmp_path / "bin" / "xpu-smi"
    tool.parent.mkdir()
    tool.write_text(SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setenv("CLANG_PATH", str(tmp_path))
    monkeypatch.setenv("XRE_PATH", str(tmp_path / "nowhere"))
    found = report()
    assert found["Kunlun devices"][0] == "2 (/dev/xpu*)"
    assert found["Kunlun driver"][0] == "515.58, XPU-RT N/A"
    assert found["XTDK (compiler)"][0] == str(tmp_path)
    assert found["XRE"][0].endswith("nowhere, which is not there")
    assert found["cuda:1"][0] == "GPU, 96.0 GiB"
    assert found["decode attention"][0] == "kunlun_ops.paged_attention"
    assert found["SwiGLU"][0] == "torch (kunlun_ops has no silu_and_mul)"
    host, fine = found["kernels on: host, through copies"]
    assert fine
    assert "post_update" in host.split(", ")
    nowhere, fine = found["kernels on: none"]
    assert not fine
    assert "gather_block_tables" in nowhere.split(", ")


def test_an_old_torch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the worker trips over it."""
    install(monkeypatch, tmp_path)
    monkeypatch.setattr(vllm.platforms, "_current_platform", KunlunPlatform())
    monkeypatch.delattr(torch.accelerator, "get_memory_info")
    text, fine = report()["torch's functions"]
    assert text.endswith("lacks torch.accelerator.get_memory_info")
    assert not fine


def test_a_driver_tool_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is said all the same."""
    install(monkeypatch, tmp_path)
    (tmp_path / "xpu-smi").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "xpu-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert "exit status 3" in report()["Kunlun driver"][0]
