# SPDX-License-Identifier: Apache-2.0
"""``vllm bench serve`` against a server."""

import contextlib
import io
import os
from typing import Any

from vllm_kunlun.bench.serve.server import Server
from vllm_kunlun.bench.spec.process import last_error
from vllm_kunlun.environment import CLOSED


def load(server: Server, arguments: list[str]) -> dict[str, Any]:
    """Load a server and return what ``vllm bench serve`` found.

    It runs in this process: vLLM takes longer to import than most loads take.

    Args:
        server: one that is ready.
        arguments: of ``vllm bench serve``.

    Raises:
        RuntimeError: the client failed, or some of its requests.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            found = client([*arguments, "--base-url", server.url, "--disable-tqdm"])
        except Exception as error:
            raise RuntimeError(
                f"vllm bench serve failed on {server.way.label}: {error}"
            ) from error
    if found.get("failed"):
        raise RuntimeError(
            f"{found['failed']} requests failed on {server.way.label}: "
            f"{last_error(server.log.read_text(errors='replace'))}"
        )
    return found


def client(arguments: list[str]) -> dict[str, Any]:
    """Run ``vllm bench serve`` with these arguments; return its result."""
    # Before vllm is imported, which reads them then.
    os.environ.update(CLOSED)
    from vllm.benchmarks.serve import add_cli_args, main
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    found: dict[str, Any] = main(parser.parse_args(arguments))
    return found
