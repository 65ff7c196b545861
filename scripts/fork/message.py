# SPDX-License-Identifier: Apache-2.0
"""What a patch's message must say, and the checks that it does."""

from __future__ import annotations

import re
from dataclasses import dataclass

PATCH_FILE = "Patch-File"
FORWARDED = "Forwarded"
ORIGIN = "Origin"
DROP_WHEN = "Drop-When"

_REQUIRED = {
    FORWARDED: (
        "`no`, `not-needed` or the address of the report",
        re.compile(r"(no|not-needed)\b|https?://\S+"),
    ),
    ORIGIN: (
        "`vendor`, `upstream`, `backport` or `other`, then from where",
        re.compile(r"(vendor|upstream|backport|other)\b"),
    ),
    DROP_WHEN: ("what makes the patch unnecessary", re.compile(r"\S")),
}
_TRAILER = re.compile(r"([A-Za-z][A-Za-z-]*): *(.*)")
# `git am` ends the message at the first of these.
_CUT = re.compile(r"---(\s|$)|diff -|Index: ")
# A first body line of this kind replaces the author, the date or the subject.
_HEADER = re.compile(r"(From|Date|Subject):", re.IGNORECASE)


@dataclass(frozen=True)
class Message:
    """A commit message in its three parts."""

    subject: str
    body: str
    trailers: tuple[tuple[str, str], ...]

    def trailer(self, key: str) -> str | None:
        """Return a trailer's value."""
        for name, value in self.trailers:
            if name.lower() == key.lower():
                return value
        return None

    def with_trailer(self, key: str, value: str) -> Message:
        """Return the message with one trailer set, at the end where it is new."""
        rest = tuple(item for item in self.trailers if item[0].lower() != key.lower())
        return Message(self.subject, self.body, (*rest, (key, value)))

    def text(self) -> str:
        """Write the message as git keeps it."""
        trailers = "\n".join(f"{key}: {value}" for key, value in self.trailers)
        parts = [self.subject, self.body, trailers]
        return "\n\n".join(part for part in parts if part) + "\n"


def parse(text: str) -> Message:
    """Split a commit message; a last paragraph of `Key: value` lines is trailers."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    paragraphs = re.split(r"\n\n+", "\n".join(lines))
    subject = " ".join(paragraphs[0].splitlines()) if paragraphs else ""
    rest = paragraphs[1:]
    trailers = _trailers(rest[-1]) if rest else None
    if trailers is not None:
        rest = rest[:-1]
    return Message(subject, "\n\n".join(rest), tuple(trailers or ()))


def of_patch(patch: bytes) -> Message:
    """Read the message of a patch file as it is written, nothing cut off."""
    head, _, _ = patch.decode("utf-8", "replace").partition("\ndiff --git ")
    headers, _, body = head.partition("\n\n")
    subject = re.search(r"^Subject: (.*(?:\n[ \t].*)*)", headers, re.MULTILINE)
    title = " ".join(subject[1].split()) if subject else ""
    return parse(f"{title}\n\n{body}")


def _trailers(paragraph: str) -> list[tuple[str, str]] | None:
    found: list[tuple[str, str]] = []
    for line in paragraph.splitlines():
        if match := _TRAILER.fullmatch(line):
            found.append((match[1], match[2]))
        elif line[:1].isspace() and found:
            key, value = found[-1]
            found[-1] = (key, f"{value}\n{line}")
        else:
            return None
    return found


def lint(message: Message, who: str) -> list[str]:
    """Say everything that a message lacks, one sentence each."""
    findings = []
    if len(message.subject) > 76:
        findings.append(
            f"{who}: the subject has {len(message.subject)} characters; say it in 76."
        )
    if message.subject.startswith("[PATCH"):
        findings.append(f"{who}: the subject starts with [PATCH; leave that out.")
    if not message.body:
        findings.append(
            f"{who}: the message does not say what the patch does and why; add a "
            "paragraph between the subject and the trailers."
        )
    if _HEADER.match(message.body):
        first = message.body.splitlines()[0]
        findings.append(
            f"{who}: the body starts with {first!r}, which git would take for a mail "
            "header; start with a sentence."
        )
    for line in message.text().splitlines():
        if _CUT.match(line):
            findings.append(
                f"{who}: the message has the line {line!r}, where git would cut it "
                "off; write that line differently."
            )
    for key, (meaning, pattern) in _REQUIRED.items():
        value = message.trailer(key)
        if value is None:
            findings.append(
                f"{who}: the trailer `{key}:` is missing; it says {meaning}."
            )
        elif not pattern.match(value):
            findings.append(
                f"{who}: the trailer `{key}: {value}` is not understood; it says "
                f"{meaning}."
            )
    return findings
