"""Who may call: the bearer token of `[auth] token_file`.

The file is read again when it changes; the token it held before stays valid for a while, because files reach
pods minutes apart.
"""

from __future__ import annotations

import hmac
import logging
from pathlib import Path

log = logging.getLogger(__name__)

OLD_TOKEN_SEC = 300.0
LOOK_SEC = 1.0
"""The file is looked at no more often than this."""


class TokenError(Exception):
    """The token file cannot be used: which, and why."""


class TokenFile:
    """The token that callers must show, and that we show to supervisors."""

    def __init__(self, path: Path, now: float) -> None:
        """Raises TokenError."""
        self._path = path
        self._looked = now
        self._stamp = self._stat()
        self._token = self._read()
        self._old: tuple[bytes, float] | None = None

    def current(self, now: float) -> str:
        self._look(now)
        return self._token.decode()

    def accepts(self, authorization: str | None, now: float) -> bool:
        """Whether the value of an Authorization header is right; takes the same time whatever is wrong."""
        self._look(now)
        scheme, _, shown = (authorization or "").partition(" ")
        valid = [self._token]
        if self._old is not None and now < self._old[1]:
            valid.append(self._old[0])
        right = [hmac.compare_digest(shown.strip().encode(), token) for token in valid]
        return scheme.lower() == "bearer" and any(right)

    def _look(self, now: float) -> None:
        if now - self._looked < LOOK_SEC:
            return
        self._looked = now
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return
            token = self._read()
        except TokenError as error:
            # Half-way through a replacement, or a mistake: the fleet must not be locked out by it.
            log.error("keeping the old token: %s", error)
            return
        self._stamp = stamp
        if token != self._token:
            self._old = (self._token, now + OLD_TOKEN_SEC)
            self._token = token
            log.info("token file read anew", extra={"path": str(self._path)})

    def _stat(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError as error:
            raise TokenError(f"cannot read the token file {self._path}: {error.strerror}") from error
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _read(self) -> bytes:
        try:
            token = self._path.read_text("ascii").strip()
        except OSError as error:
            raise TokenError(f"cannot read the token file {self._path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise TokenError(f"the token file {self._path} holds something else than ASCII text") from error
        if not token or token.split() != [token]:
            raise TokenError(f"the token file {self._path} must hold exactly one token")
        return token.encode()
