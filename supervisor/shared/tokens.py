"""Who may call, and what: the bearer tokens of `[auth] token_file`.

The file is read again when it changes; the tokens it held before stay valid for a while, because files reach
pods minutes apart.
"""

from __future__ import annotations

import hmac
import logging
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

log = logging.getLogger(__name__)

OLD_TOKEN_SEC = 300.0
LOOK_SEC = 1.0
"""The file is looked at no more often than this."""


class TokenError(Exception):
    """The token file cannot be used: which, and why."""


class Role(IntEnum):
    """What a token may do; each role may do what those before it may."""

    READ = 1
    """Look: units, logs, events, instances, runs."""
    OPERATE = 2
    """Change units and ask for relaunches, as an operator."""
    NODE = 3
    """Speak as supervisor and controller do to each other."""


ROLES = {role.name.lower(): role for role in Role}
EXPECTED = f"expected TOKEN, ROLE TOKEN or ROLE@NAMESPACE TOKEN, with a ROLE of {', '.join(ROLES)}"


@dataclass(frozen=True, slots=True)
class Grant:
    """What one line of the file grants."""

    role: Role
    namespace: str | None = None
    """None: in every namespace."""

    def __str__(self) -> str:
        return f"{self.role.name.lower()}{f' in namespace {self.namespace}' if self.namespace is not None else ''}"


@dataclass(frozen=True, slots=True)
class Rights:
    """What the caller may do: all that the lines with its token grant."""

    grants: tuple[Grant, ...]

    @property
    def role(self) -> Role:
        """The highest that it has anywhere."""
        return max(grant.role for grant in self.grants)

    def role_in(self, namespace: str) -> Role | None:
        return max((grant.role for grant in self.grants if grant.namespace in (None, namespace)), default=None)

    def may(self, role: Role, namespace: str) -> bool:
        found = self.role_in(namespace)
        return found is not None and found >= role

    def may_everywhere(self, role: Role) -> bool:
        return any(grant.namespace is None and grant.role >= role for grant in self.grants)

    def __str__(self) -> str:
        return ", ".join(map(str, self.grants))


EVERY_RIGHT = Rights((Grant(Role.NODE),))
"""Of everybody, where no token is asked for."""

Lines = tuple[tuple[bytes, Grant], ...]
"""Tokens and what they grant, in the order of the file."""


class TokenFile:
    """The tokens that callers must show, and the one that we show ourselves.

    A line is `TOKEN`, which may do everything, `ROLE TOKEN`, or `ROLE@NAMESPACE TOKEN`, which grants the role in that
    namespace only. A role may have several tokens, and a token several lines. Empty lines and those that begin with
    `#` mean nothing.
    """

    def __init__(self, path: Path, now: float) -> None:
        """Raises TokenError."""
        self._path = path
        self._looked = now
        self._stamp = self._stat()
        self._lines = self._read()
        self._old: tuple[Lines, float] | None = None

    def current(self, now: float) -> str:
        """What a command shows: the first token of those that may do most."""
        self._look(now)
        return _strongest(self._lines).decode()

    def current_in(self, namespace: str, now: float) -> str | None:
        """What a program shows to those of `namespace`: a node token of theirs, else one that is bound to none.

        Never another namespace's, for who gets to see a token can use it; nor one for people, which may do too little.
        """
        self._look(now)
        for wanted in (Grant(Role.NODE, namespace), Grant(Role.NODE)):
            if found := next((token for token, grant in self._lines if grant == wanted), None):
                return found.decode()
        return None

    def rights_of(self, authorization: str | None, now: float) -> Rights | None:
        """What the sender of this Authorization header may do; takes the same time whatever is wrong."""
        self._look(now)
        scheme, _, shown = (authorization or "").partition(" ")
        valid = self._lines
        if self._old is not None and now < self._old[1]:
            valid += self._old[0]
        grants = tuple(grant for token, grant in valid if hmac.compare_digest(shown.strip().encode(), token))
        return Rights(grants) if grants and scheme.lower() == "bearer" else None

    def _look(self, now: float) -> None:
        if now - self._looked < LOOK_SEC:
            return
        self._looked = now
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return
            lines = self._read()
        except TokenError as error:
            # Half-way through a replacement, or a mistake: the fleet must not be locked out by it.
            log.error("keeping the old tokens: %s", error)
            return
        self._stamp = stamp
        if lines != self._lines:
            self._old = (self._lines, now + OLD_TOKEN_SEC)
            self._lines = lines
            log.info("token file read anew", extra={"path": str(self._path)})

    def _stat(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError as error:
            raise TokenError(f"cannot read the token file {self._path}: {error.strerror}") from error
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _read(self) -> Lines:
        try:
            lines = self._path.read_text("ascii").splitlines()
        except OSError as error:
            raise TokenError(f"cannot read the token file {self._path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise TokenError(f"the token file {self._path} holds something else than ASCII text") from error
        words = ((number, line.split()) for number, line in enumerate(lines, 1))
        found = tuple(self._line(number, line) for number, line in words if line and not line[0].startswith("#"))
        if not found:
            raise TokenError(f"the token file {self._path} holds no token")
        return found

    def _line(self, number: int, words: list[str]) -> tuple[bytes, Grant]:
        """Never tells what was found: it may be a secret."""
        match words:
            case [token]:
                return token.encode(), Grant(Role.NODE)
            case [granted, token]:
                name, at, namespace = granted.partition("@")
                if name in ROLES and bool(at) == bool(namespace):
                    return token.encode(), Grant(ROLES[name], namespace or None)
        raise TokenError(f"{self._path}:{number}: {EXPECTED}")


def _strongest(lines: Lines) -> bytes:
    return max(lines, key=lambda line: line[1].role)[0]
