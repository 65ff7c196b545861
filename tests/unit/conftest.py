# SPDX-License-Identifier: Apache-2.0
"""The made-up Kunlun machine lies beside the parts that test on it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
