# SPDX-License-Identifier: Apache-2.0
"""Reads upstream.toml, and writes the lock in it without touching the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from fork.errors import ForkError, not_maintained, shown
from fork.files import write_atomically


@dataclass(frozen=True)
class Artifact:
    """One file on the package index, pinned by name, size and digest."""

    project: str
    version: str
    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Lock:
    """What the series must come out as; written by the tools alone."""

    base: str = ""
    series: str = ""
    tree: str = ""


@dataclass(frozen=True)
class Rebased:
    """Which patches of another version a series was made from; written by rebase.

    Attributes:
        source: that version.
        patches: per patch file, a digest of what the original changed.
    """

    source: str
    patches: Mapping[str, str]


@dataclass(frozen=True)
class Upstream:
    """One maintained upstream version."""

    version: str
    revision: int
    torch: str
    sdist: Artifact
    donor: Artifact
    lock: Lock
    rebased: Rebased | None = None


@dataclass(frozen=True)
class Config:
    """The whole of upstream.toml."""

    path: Path
    default: str
    upstreams: Mapping[str, Upstream]
    weights: Mapping[str, Artifact]

    def upstream(self, version: str | None = None) -> Upstream:
        """Return the asked-for version, or the default one."""
        wanted = version or self.default
        if wanted not in self.upstreams:
            raise not_maintained(wanted, self.upstreams, self.path)
        return self.upstreams[wanted]


def load(path: Path) -> Config:
    """Read and check upstream.toml."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ForkError(
            f"{path} is missing: run the tools from a complete clone of the project."
        ) from None
    return parse(content, path)


def parse(content: bytes, path: Path) -> Config:
    """Check what is, or once was, in upstream.toml."""
    try:
        data: dict[str, Any] = tomlkit.parse(content.decode("utf-8")).unwrap()
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ForkError(f"{shown(path)} is not valid TOML: {error}.") from None
    reader = Reader(path)
    upstreams = {
        version: Upstream(
            version=version,
            revision=reader.number(table, "revision", where=version),
            torch=reader.text(table, "torch", where=version),
            sdist=reader.artifact(table, "sdist", where=version),
            donor=reader.artifact(table, "donor", where=version),
            lock=Lock(**reader.table(table, "lock", where=version)),
            rebased=reader.rebased(table, where=version),
        )
        for version, table in reader.table(data, "upstream").items()
    }
    weights = {
        name: reader.artifact(data["weights"], name, where="weights")
        for name in data.get("weights", {})
    }
    default = reader.text(data, "default")
    config = Config(path, default, upstreams, weights)
    config.upstream()
    return config


def write_lock(path: Path, version: str, lock: Lock) -> bool:
    """Record a lock; return whether the file had to change."""
    text = path.read_bytes().decode("utf-8")
    document = tomlkit.parse(text)
    table: Any = document["upstream"]
    for key, value in asdict(lock).items():
        table[version]["lock"][key] = value
    new = tomlkit.dumps(document)
    if new == text:
        return False
    write_atomically(path, new.encode("utf-8"))
    return True


def write_upstream(path: Path, upstream: Upstream) -> None:
    """Record a version that was rebased to; what a person wrote of it stays."""
    text = path.read_bytes().decode("utf-8")
    document = tomlkit.parse(text)
    tables: Any = document["upstream"]
    if upstream.version in tables:
        table = tables[upstream.version]
        table["lock"].update(asdict(upstream.lock))
        if upstream.rebased and table.get("rebased") != asdict(upstream.rebased):
            table["rebased"] = asdict(upstream.rebased)
        new = tomlkit.dumps(document)
    else:
        new = _with_table(text, upstream)
    write_atomically(path, new.encode("utf-8"))


def _with_table(text: str, upstream: Upstream) -> str:
    """Put a new version behind the last one, before what is said of the next table."""
    content = asdict(upstream)
    del content["version"]
    if upstream.rebased is None:
        del content["rebased"]
    table = tomlkit.dumps({"upstream": {upstream.version: content}})
    lines = text.splitlines(keepends=True)
    headers = [n for n, line in enumerate(lines) if line.startswith("[")]
    last = max(n for n in headers if lines[n].startswith("[upstream."))
    end = min([n for n in headers if n > last], default=len(lines))
    while end > last and (not lines[end - 1].strip() or lines[end - 1][0] == "#"):
        end -= 1
    return "".join([*lines[:end], "\n", table, *lines[end:]])


class Reader:
    """Takes typed values out of the parsed file, naming what is wrong."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _get(self, table: Any, key: str, kind: type, where: str) -> Any:
        value = table.get(key) if isinstance(table, dict) else None
        if not isinstance(value, kind):
            name = f"{where}.{key}" if where else key
            raise ForkError(
                f"{shown(self._path)} has no usable `{name}` (found {value!r}): "
                f"give it a {kind.__name__}."
            )
        return value

    def table(self, table: Any, key: str, where: str = "") -> dict[str, Any]:
        result: dict[str, Any] = self._get(table, key, dict, where)
        return result

    def text(self, table: Any, key: str, where: str = "") -> str:
        return str(self._get(table, key, str, where))

    def number(self, table: Any, key: str, where: str = "") -> int:
        return int(self._get(table, key, int, where))

    def rebased(self, table: Any, where: str) -> Rebased | None:
        if "rebased" not in table:
            return None
        raw = self.table(table, "rebased", where)
        name = f"{where}.rebased"
        patches = self.table(raw, "patches", name)
        digests = {key: self.text(patches, key, f"{name}.patches") for key in patches}
        return Rebased(self.text(raw, "source", name), digests)

    def artifact(self, table: Any, key: str, where: str) -> Artifact:
        raw = self.table(table, key, where)
        name = f"{where}.{key}"
        artifact = Artifact(
            project=self.text(raw, "project", name),
            version=self.text(raw, "version", name),
            file=self.text(raw, "file", name),
            size=self.number(raw, "size", name),
            sha256=self.text(raw, "sha256", name),
        )
        if not re.fullmatch(r"[0-9a-f]{64}", artifact.sha256):
            raise ForkError(
                f"{shown(self._path)}: `{name}.sha256` is {artifact.sha256!r}, "
                "not 64 lower-case hexadecimal digits."
            )
        if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", artifact.file):
            raise ForkError(
                f"{shown(self._path)}: `{name}.file` is {artifact.file!r}, "
                "not a plain file name."
            )
        return artifact
