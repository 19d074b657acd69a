"""Certificates of a private CA, made by openssl(1): what a fleet's certificate manager would mount."""

from __future__ import annotations

import subprocess
from pathlib import Path

SUBJECT_LESS = ("-days", "1", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def make_ca(directory: Path, name: str = "ca") -> None:
    key, certificate = directory / f"{name}.key", directory / f"{name}.crt"
    _openssl("req", "-x509", *SUBJECT_LESS, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate))


def make_certificate(directory: Path, name: str, ca: str = "ca", address: str | None = None) -> None:
    """NAME.crt and NAME.key, signed by that CA; for a server at `address`, for those who compare it."""
    request, key, certificate = (directory / f"{name}.{end}" for end in ("csr", "key", "crt"))
    names = ("-addext", f"subjectAltName=IP:{address}") if address else ()
    _openssl("req", *SUBJECT_LESS[2:], "-subj", f"/CN={name}", *names, "-keyout", str(key), "-out", str(request))
    signer = ("-CA", str(directory / f"{ca}.crt"), "-CAkey", str(directory / f"{ca}.key"), "-CAcreateserial")
    _openssl(
        "x509", "-req", "-days", "1", "-copy_extensions", "copy", "-in", str(request), *signer, "-out", str(certificate)
    )


def section(directory: Path, name: str, ca: str = "ca") -> dict[str, object]:
    """`[tls]` for the owner of that certificate."""
    return {
        "cert": str(directory / f"{name}.crt"),
        "key": str(directory / f"{name}.key"),
        "client_ca": str(directory / f"{ca}.crt"),
    }


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
