# SPDX-License-Identifier: Apache-2.0
"""Real weights, four ways to generate, the same tokens: ``vllm-kunlun demo``."""
