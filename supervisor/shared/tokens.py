"""Who may call, and what: the bearer tokens of `[auth] token_file`.

The file is read again when it changes; the tokens it held before stay valid for a while, because files reach
pods minutes apart.
"""

from __future__ import annotations

import hmac
import logging
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
Rights = tuple[tuple[bytes, Role], ...]
"""Which token may do what, in the order of the file."""


class TokenFile:
    """The tokens that callers must show, and the one that we show ourselves.

    A line is `TOKEN`, which may do everything, or `ROLE TOKEN`; a role may have several tokens. Empty lines and those
    that begin with `#` mean nothing.
    """

    def __init__(self, path: Path, now: float) -> None:
        """Raises TokenError."""
        self._path = path
        self._looked = now
        self._stamp = self._stat()
        self._rights = self._read()
        self._old: tuple[Rights, float] | None = None

    def current(self, now: float) -> str:
        """What we show: the first token of those that may do most."""
        self._look(now)
        return max(self._rights, key=lambda right: right[1])[0].decode()

    def role_of(self, authorization: str | None, now: float) -> Role | None:
        """What the sender of this Authorization header may do; takes the same time whatever is wrong."""
        self._look(now)
        scheme, _, shown = (authorization or "").partition(" ")
        valid = self._rights
        if self._old is not None and now < self._old[1]:
            valid += self._old[0]
        right = [role for token, role in valid if hmac.compare_digest(shown.strip().encode(), token)]
        return max(right, default=None) if scheme.lower() == "bearer" else None

    def _look(self, now: float) -> None:
        if now - self._looked < LOOK_SEC:
            return
        self._looked = now
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return
            rights = self._read()
        except TokenError as error:
            # Half-way through a replacement, or a mistake: the fleet must not be locked out by it.
            log.error("keeping the old tokens: %s", error)
            return
        self._stamp = stamp
        if rights != self._rights:
            self._old = (self._rights, now + OLD_TOKEN_SEC)
            self._rights = rights
            log.info("token file read anew", extra={"path": str(self._path)})

    def _stat(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError as error:
            raise TokenError(f"cannot read the token file {self._path}: {error.strerror}") from error
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _read(self) -> Rights:
        try:
            lines = self._path.read_text("ascii").splitlines()
        except OSError as error:
            raise TokenError(f"cannot read the token file {self._path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise TokenError(f"the token file {self._path} holds something else than ASCII text") from error
        words = ((number, line.split()) for number, line in enumerate(lines, 1))
        rights = tuple(self._right(number, line) for number, line in words if line and not line[0].startswith("#"))
        if not rights:
            raise TokenError(f"the token file {self._path} holds no token")
        return rights

    def _right(self, number: int, words: list[str]) -> tuple[bytes, Role]:
        """Never tells what was found: it may be a secret."""
        match words:
            case [token]:
                return token.encode(), Role.NODE
            case [name, token] if name in ROLES:
                return token.encode(), ROLES[name]
        raise TokenError(f"{self._path}:{number}: expected TOKEN or ROLE TOKEN, with a ROLE of {', '.join(ROLES)}")
