"""LoadCredential=: secrets read at every start, and kept out of everything that people are shown.

Whatever was read once is replaced by `[redacted NAME]` from then on, also after it was rotated: in output tails, in
reasons and logs of ours. A secret that a program writes in another form (base64, URL-encoded, in pieces) is not
recognised.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from supervisor.unit.expand import CREDENTIAL

MAX_BYTES = 1024 * 1024
"""As systemd's limit for one credential."""
REMEMBERED = 64
"""Secrets of all units together; the oldest, long rotated, are forgotten first."""
SHORTEST_LINE = 8
"""A secret of several lines (a key in PEM) is also known by each line that is no shorter."""

Event = TypeVar("Event", bound=msgspec.Struct)


class CredentialError(Exception):
    """A secret that cannot be had; the message names the key and the file, and never says what is in it."""


class Secrets:
    """What must not be shown. One for a whole pod: units see each other's output."""

    def __init__(self) -> None:
        self._known: deque[tuple[str, str]] = deque(maxlen=REMEMBERED)
        """(name, secret), the newest last."""
        self._hidden: tuple[tuple[str, str], ...] = ()
        """(what is hidden, what stands in its place), the longest first: one may be a part of another."""

    def read(self, credentials: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The variables that stand for them in the strings of their unit. Raise CredentialError."""
        read = {name: _read(name, Path(path)) for name, path in credentials}
        for name, secret in read.items():
            self._remember(name, secret)
        return {f"{CREDENTIAL}{name}": secret for name, secret in read.items()}

    def redact(self, text: str) -> str:
        for secret, shown in self._hidden:
            if secret in text:
                text = text.replace(secret, shown)
        return text

    def redact_bytes(self, data: bytes) -> bytes:
        for secret, shown in self._hidden:
            if (hidden := secret.encode()) in data:
                data = data.replace(hidden, shown.encode())
        return data

    def redacted(self, event: Event) -> Event:
        """The same with its texts cleaned."""
        if not self._hidden:
            return event
        texts = {name: getattr(event, name) for name in event.__struct_fields__}
        changed = {name: self.redact(text) for name, text in texts.items() if isinstance(text, str)}
        return replace(event, **changed) if changed else event

    def _remember(self, name: str, secret: str) -> None:
        if (name, secret) in self._known:
            return
        self._known.append((name, secret))
        hidden = {piece: f"[redacted {known}]" for known, value in self._known for piece in _forms(value)}
        self._hidden = tuple(sorted(hidden.items(), key=lambda each: -len(each[0])))


def _forms(secret: str) -> Iterator[str]:
    """In which it may turn up: whole, line by line, and as JSON would write it."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield from (line.strip() for line in secret.splitlines() if len(line.strip()) >= SHORTEST_LINE)


def _read(name: str, path: Path) -> str:
    """One newline at the end is the file's, not the secret's."""
    where = f"LoadCredential {name}"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CredentialError(f"{where}: cannot read {path}: {error.strerror}; mount it, or mend its mode") from error
    if len(data) > MAX_BYTES:
        raise CredentialError(f"{where}: {path} is larger than {MAX_BYTES} bytes, which no secret is")
    try:
        secret = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise CredentialError(f"{where}: {path} is not text in UTF-8") from None
    if not secret or "\0" in secret:
        found = "is empty" if not secret else "holds a NUL byte, which cannot be passed on"
        raise CredentialError(f"{where}: {path} {found}")
    return secret
