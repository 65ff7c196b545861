# SPDX-License-Identifier: Apache-2.0
"""What speculation brings: ``vllm-kunlun bench spec``."""
