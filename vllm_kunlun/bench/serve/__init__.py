# SPDX-License-Identifier: Apache-2.0
"""Servers with V1 and V2 under the same load: ``vllm-kunlun bench serve``."""
