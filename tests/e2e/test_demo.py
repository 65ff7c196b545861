# SPDX-License-Identifier: Apache-2.0
"""The demo, as the README promises it: real weights, four ways, the same tokens."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_demo_from_the_source_folder() -> None:
    """Where apply_and_build.sh runs it, beside sources that are not the package."""
    command = Path(sys.executable).with_name("vllm-kunlun")
    done = subprocess.run(
        [command, "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All four gave the same tokens." in done.stdout
    assert "Paris" in done.stdout
    # Some drafts must have been right, or the demo would show nothing.
    for way in ("dspark n-gram", "DSpark draft"):
        assert re.search(rf"V2 \+ {way} .* [1-9]\d* .*%", done.stdout)
