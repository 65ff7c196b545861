# SPDX-License-Identifier: Apache-2.0
"""Settings of the kernel tests, which need a pytest process of their own."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parents[1]))
# Valid launches must pass the index checks too.
os.environ["VLLM_KUNLUN_CHECK"] = "1"

settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("brief", settings.get_profile("ci"), max_examples=20)
settings.register_profile("more", settings.get_profile("ci"), max_examples=5000)
settings.load_profile(os.environ.get("VLLM_KUNLUN_TEST_PROFILE", "ci"))


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
