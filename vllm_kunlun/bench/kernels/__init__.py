# SPDX-License-Identifier: Apache-2.0
"""Each kernel against torch code for the same work: ``vllm-kunlun bench kernels``."""
