# SPDX-License-Identifier: Apache-2.0
"""How many cases the property-based tests of kernels draw."""

import os
from collections.abc import Mapping

from hypothesis import HealthCheck, settings


def load(examples: Mapping[str, int]) -> None:
    """Load the profile that ``VLLM_KUNLUN_TEST_PROFILE`` names, ``ci`` if none.

    Args:
        examples: the cases that a test draws, by profile.
    """
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    for name, count in examples.items():
        settings.register_profile(
            name,
            max_examples=count,
            deadline=None,
            print_blob=True,
            suppress_health_check=slow,
        )
    settings.load_profile(os.environ.get("VLLM_KUNLUN_TEST_PROFILE", "ci"))
