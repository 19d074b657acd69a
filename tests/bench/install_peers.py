"""`python -m tests.bench --install-peers`: the peers, and podvisor as it is deployed, each in its own environment."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.managers import peers_directory

TIMEOUT_SEC = 1800
# Pinned, so that figures of two days can be compared.
MANAGERS = ("supervisor==4.3.0", "circus==0.19.0")
TORCH = ("torch==2.13.0", "numpy")


def install(*, with_torch: bool) -> None:
    """Never into podvisor's own environment: PyPI's `supervisor` would overwrite our package.

    Podvisor too gets an environment of its own, with what it needs and no more, as it would be deployed.
    """
    home = peers_directory()
    _install_into(home, *MANAGERS, *(TORCH if with_torch else ()))
    _install_into(home / "podvisor", "--editable", str(Path(__file__).parents[2]))


def _install_into(environment: Path, *wanted: str) -> None:
    if not (environment / "bin" / "pip").exists():
        _run([sys.executable, "-m", "venv", "--clear", str(environment)])
    _run([str(environment / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted])


def _run(argv: Sequence[str]) -> None:
    print("+", *argv, flush=True)
    began = time.monotonic()
    subprocess.run(argv, check=True, timeout=TIMEOUT_SEC, stdin=subprocess.DEVNULL)
    print(f"  took {time.monotonic() - began:.0f} s")
