# SPDX-License-Identifier: Apache-2.0
"""The runner's control plane without a model: ``vllm-kunlun bench step``."""
