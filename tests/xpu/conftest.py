# SPDX-License-Identifier: Apache-2.0
"""The kernels' own tests, with the host's kernels as the oracle of the XPU's."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import profiles

os.environ["VLLM_KUNLUN_CHECK"] = "1"

profiles.load({"ci": 15, "brief": 5, "more": 300})
