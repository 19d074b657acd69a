"""LoadCredential=: secrets read at every start, and kept out of everything that people are shown.

Whatever was read once is replaced by `[redacted NAME]` from then on, also after it was rotated: in output tails, in
reasons and logs of ours. A secret that a program writes in another form (base64, URL-encoded, in pieces) is not
recognised.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from supervisor.shared.small_file import TooLarge, read_small
from supervisor.unit.expand import CREDENTIAL

REMEMBERED = 16
"""Of one file; the oldest, long rotated, are forgotten first."""
SHORTEST_LINE = 8
"""A secret of several lines (a key in PEM) is also known by each line that is no shorter."""

Event = TypeVar("Event", bound=msgspec.Struct)


class CredentialError(Exception):
    """A secret that cannot be had; the message names the key and the file, and never says what is in it."""


class Secrets:
    """What must not be shown. One for a whole pod: units see each other's output."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], deque[str]] = {}
        """By name and path, the newest last."""
        self._hidden: tuple[tuple[str, str], ...] = ()
        """(what is hidden, what stands in its place), the longest first: one may be a part of another."""

    def remember(self, credentials: Sequence[tuple[str, str]], variables: Mapping[str, str]) -> None:
        """What `read_credentials` has found, before anything is made of it."""
        for name, path in credentials:
            self._remember(name, path, variables[f"{CREDENTIAL}{name}"])

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
        """The same with its texts cleaned; and such that JSON can have them, which all state ends up in."""
        texts = {name: getattr(event, name) for name in event.__struct_fields__}
        shown = {name: _encodable(self.redact(text)) for name, text in texts.items() if isinstance(text, str)}
        changed = {name: text for name, text in shown.items() if text is not texts[name]}
        return replace(event, **changed) if changed else event

    def _remember(self, name: str, path: str, secret: str) -> None:
        known = self._known.setdefault((name, path), deque(maxlen=REMEMBERED))
        if secret in known:
            return
        known.append(secret)
        hidden = {
            piece: f"[redacted {known_as}]"
            for (known_as, _), secrets in self._known.items()
            for each in secrets
            for piece in _forms(each)
        }
        self._hidden = tuple(sorted(hidden.items(), key=lambda each: -len(each[0])))


def read_credentials(credentials: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The variables that stand for them in the strings of their unit. Blocks. Raise CredentialError."""
    return {f"{CREDENTIAL}{name}": _read(name, Path(path)) for name, path in credentials}


def _encodable(text: str) -> str:
    """Names of files and of processes may be bytes that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def _forms(secret: str) -> Iterator[str]:
    """In which it may turn up: whole, line by line, and as JSON would write it."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield from (line.strip() for line in secret.splitlines() if len(line.strip()) >= SHORTEST_LINE)


def _read(name: str, path: Path) -> str:
    """One newline at the end is the file's, not the secret's."""
    where = f"LoadCredential {name}"
    try:
        data = read_small(path)
    except TooLarge as error:
        raise CredentialError(f"{where}: {path}: {error}, which no secret is") from error
    except OSError as error:
        raise CredentialError(f"{where}: cannot read {path}: {error.strerror}; mount it, or mend its mode") from error
    try:
        secret = data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise CredentialError(f"{where}: {path} is not text in UTF-8") from None
    if not secret or "\0" in secret:
        found = "is empty" if not secret else "holds a NUL byte, which cannot be passed on"
        raise CredentialError(f"{where}: {path} {found}")
    return secret
