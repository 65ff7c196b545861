# SPDX-License-Identifier: Apache-2.0
"""Settings of the kernel tests, which need a pytest process of their own."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import profiles

# Valid launches must pass the index checks too.
os.environ["VLLM_KUNLUN_CHECK"] = "1"

profiles.load({"ci": 200, "brief": 20, "more": 5000})


def pytest_configure(config: pytest.Config) -> None:
    """Keep the interpreter's own NumPy deprecations out of the report."""
    config.addinivalue_line(
        "filterwarnings", "ignore:Conversion of an array:DeprecationWarning:triton"
    )


def pytest_sessionstart() -> None:
    """Settle which vllm this process has before a test imports it."""
    from oracle import prepare

    try:
        prepare()
    except RuntimeError as error:
        raise pytest.UsageError(str(error)) from None
