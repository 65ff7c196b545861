# SPDX-License-Identifier: Apache-2.0
"""What a folder's files were made with."""

import json
from pathlib import Path
from typing import Any

from vllm_kunlun.files import write_json


def same_settings(path: Path, settings: dict[str, Any]) -> None:
    """Note what a folder's files are made with; refuse to go on with something else.

    Args:
        path: of the note.
        settings: names of options and what can be written as JSON.

    Raises:
        ValueError: the folder was begun with other settings.
    """
    if not path.exists():
        write_json(path, settings, indent=2)
        return
    before = json.loads(path.read_text())
    for name in sorted(before.keys() | settings.keys()):
        if before.get(name) != settings.get(name):
            raise ValueError(
                f"{path.parent} was begun with {name}={before.get(name)!r}, not "
                f"{settings.get(name)!r}: go on with that, or take another --work."
            )
