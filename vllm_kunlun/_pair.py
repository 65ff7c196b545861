# SPDX-License-Identifier: Apache-2.0
"""The two wheels of one build belong together; any other pair is refused."""

from importlib.metadata import PackageNotFoundError, version


def belongs(vllm_version: str, fork_version: str) -> bool:
    """Whether `vllm_version` is the fork's, whatever target it was built for."""
    return vllm_version == fork_version or vllm_version.startswith(f"{fork_version}.")


def check_pair() -> str:
    """Return this package's version.

    Raises:
        ImportError: the installed ``vllm`` is not the one of the same build.
    """
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
