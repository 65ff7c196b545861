# SPDX-License-Identifier: Apache-2.0
"""Train a small DSpark draft on what its target says: ``vllm-kunlun train-draft``."""
