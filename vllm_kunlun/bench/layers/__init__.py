# SPDX-License-Identifier: Apache-2.0
"""A model's layers in upstream's form and in ours: ``vllm-kunlun bench layers``."""
