# SPDX-License-Identifier: Apache-2.0
"""The two wheels of one build belong together; any other pair is refused."""

from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

# The vendor's plugin (baidu/vLLM-Kunlun) has our names, of package and distribution.
_VENDOR_FILE = Path("platforms", "kunlun.py")


def belongs(vllm_version: str, fork_version: str) -> bool:
    """Whether `vllm_version` is the fork's, whatever target it was built for."""
    return vllm_version == fork_version or vllm_version.startswith(f"{fork_version}.")


def check_pair() -> str:
    """Return this package's version.

    Raises:
        ImportError: the installed ``vllm`` is not the one of the same build, or the
            vendor's plugin is installed too.
    """
    refuse_vendor_plugin(Path(__file__).parent)
    ours = version("vllm-kunlun")
    try:
        theirs = version("vllm")
    except PackageNotFoundError:
        theirs = "none"
    if not belongs(theirs, ours):
        raise ImportError(
            f"vllm-kunlun {ours} needs the vllm wheel of the same build, but found "
            f"vllm {theirs}: install both wheels that scripts/apply_and_build.sh "
            "leaves in dist/."
        )
    return ours


def refuse_vendor_plugin(package: Path) -> None:
    """Refuse to run in a mixture with the vendor's plugin.

    Args:
        package: the folder of this package.

    Raises:
        ImportError: files or metadata of the vendor's plugin are there.
    """
    theirs = [
        f"vllm-kunlun {found.version}"
        for found in distributions(name="vllm-kunlun")
        if "+kunlun." not in found.version
    ]
    if (package / _VENDOR_FILE).exists():
        theirs.append(str(package / _VENDOR_FILE))
    if theirs:
        raise ImportError(
            f"The vendor's plugin is installed beside this vllm-kunlun "
            f"({', '.join(theirs)}), under the same names: install this one and its "
            "vllm in an environment without the vendor's, or run `pip uninstall "
            "vllm-kunlun` until nothing is left and install both wheels again."
        )
