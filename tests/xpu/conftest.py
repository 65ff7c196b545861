# SPDX-License-Identifier: Apache-2.0
"""The kernels' own tests, with the host's kernels as the oracle of the XPU's."""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "kernels")]
os.environ["VLLM_KUNLUN_CHECK"] = "1"

settings.register_profile(
    "ci",
    max_examples=15,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("more", settings.get_profile("ci"), max_examples=300)
settings.load_profile(os.environ.get("VLLM_KUNLUN_TEST_PROFILE", "ci"))
