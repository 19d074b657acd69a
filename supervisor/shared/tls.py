"""`[tls]`: who speaks to whom is shown by certificates of one private CA, in both directions.

Names in certificates are not compared: pods have addresses that nobody knows when certificates are made. Whoever
holds one of this CA's is let in, so the CA must sign for nothing else. The files are read again when they change,
for the connections that begin after that; a CA that was taken out of the file stays trusted until the next start.
"""

from __future__ import annotations

import logging
import ssl
import time
from pathlib import Path
from typing import Any

import msgspec

from supervisor.shared.error_window import ErrorWindow

log = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int, int], ...]


class TlsError(Exception):
    """The files cannot be used: which, and why."""


class TlsFiles(msgspec.Struct, frozen=True):
    cert: Path
    key: Path
    client_ca: Path

    @property
    def stamp(self) -> Stamp:
        """Raise OSError."""
        stats = [path.stat() for path in (self.cert, self.key, self.client_ca)]
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def tls_files(cert: str | None, key: str | None, client_ca: str | None) -> TlsFiles | None:
    """None unless all three are set; that it is all or none is checked with the settings."""
    return TlsFiles(Path(cert), Path(key), Path(client_ca)) if cert and key and client_ca else None


class Tls:
    """Both sides of one program's connections."""

    def __init__(self, files: TlsFiles) -> None:
        """Raise TlsError."""
        self._files = files
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.client.check_hostname = False
        for context in (self.server, self.client):
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.verify_mode = ssl.CERT_REQUIRED
        self.server.set_alpn_protocols(["http/1.1"])
        self.server.sni_callback = self._before_handshake
        self._errors = ErrorWindow()
        self._stamp = self._load()

    def look(self) -> None:
        """Read the files again if they have changed. What cannot be used is logged, and the old is kept."""
        try:
            if self._files.stamp != self._stamp:
                self._stamp = self._load()
                log.info("the files of [tls] were read anew")
        except (OSError, TlsError) as error:
            held_back = self._errors.admit("files", time.monotonic())
            if held_back is not None:
                log.error("keeping the old certificate: %s", error, extra={"held_back": held_back})

    def _before_handshake(self, *_: Any) -> None:
        self.look()

    def _load(self) -> Stamp:
        files = self._files
        try:
            stamp = files.stamp
            # Of a pair that does not fit OpenSSL takes the certificate and drops the key that it had: try it elsewhere.
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.server, self.client):
                context.load_cert_chain(files.cert, files.key)
                context.load_verify_locations(files.client_ca)
        except (OSError, ssl.SSLError) as error:
            names = f"{files.cert}, {files.key}, {files.client_ca}"
            raise TlsError(f"cannot use the files of [tls] ({names}): {error}") from error
        return stamp
