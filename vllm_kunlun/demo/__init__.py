# SPDX-License-Identifier: Apache-2.0
"""Real weights, three ways to generate, the same tokens: ``vllm-kunlun demo``."""
