# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: ``vllm-kunlun bench``."""
