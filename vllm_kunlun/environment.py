# SPDX-License-Identifier: Apache-2.0
"""Variables of the processes that we start engines in."""

CLOSED = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Nothing is asked of a hub, and no address but loopback is needed."""

IN_PROCESS = CLOSED | {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # V1 compiles helpers even where eager execution was asked for: a minute for
    # what takes seconds.
    "TORCHDYNAMO_DISABLE": "1",
}
"""For an eager engine in the process itself, so that it can be looked into."""
