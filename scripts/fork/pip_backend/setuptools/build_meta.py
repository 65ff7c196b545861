# SPDX-License-Identifier: Apache-2.0
"""A build backend that only repeats the metadata an sdist already carries.

`pip download` insists on the metadata of an sdist after it has checked the digest,
and would run the archive's own setup.py for it, with everything that imports. Put
before the real setuptools on the path, this answers from PKG-INFO and runs nothing.
"""

from __future__ import annotations

import email
import re
from pathlib import Path
from typing import Any


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Ask for nothing more to be downloaded."""
    return []


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Any = None
) -> str:
    """Copy PKG-INFO of the sdist in the current folder."""
    content = Path("PKG-INFO").read_bytes()
    fields = email.message_from_bytes(content)
    project = re.sub(r"[-_.]+", "_", str(fields["Name"]))
    name = f"{project}-{fields['Version']}.dist-info"
    folder = Path(metadata_directory) / name
    folder.mkdir()
    (folder / "METADATA").write_bytes(content)
    return name


def build_wheel(*arguments: Any, **options: Any) -> str:
    """Refuse: this backend exists for downloading."""
    raise RuntimeError("only metadata can be had from this backend")
