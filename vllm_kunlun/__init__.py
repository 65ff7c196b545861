# SPDX-License-Identifier: Apache-2.0
"""vLLM's Model Runner V2 and DSpark on hardware without Triton."""

from vllm_kunlun._pair import check_pair

__version__ = check_pair()
