"""Where the suites come from: `PODVISOR_TEST_SUITES=DIR` with checkouts `dumb-init` and `tini`, else a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

VARIABLE = "PODVISOR_TEST_SUITES"
_SOURCES = {"dumb-init": "https://github.com/Yelp/dumb-init", "tini": "https://github.com/krallin/tini"}
_CLONE_SEC = 60


class NoCheckout(Exception):
    """The suite cannot be had; the text says why and what to do."""


def checkout(name: str, directory: Path) -> Path:
    """A working copy of our own below `directory`. Raise NoCheckout."""
    target = directory / "suite"
    given = os.environ.get(VARIABLE)
    if given is None:
        _clone(name, target)
        return target
    source = Path(given) / name
    if not source.is_dir():
        raise NoCheckout(f"{VARIABLE} is {given}, but there is no directory {source}")
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    return target


def _clone(name: str, target: Path) -> None:
    command = ["git", "clone", "--quiet", "--depth=1", _SOURCES[name], str(target)]
    never_ask = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(command, env=never_ask, capture_output=True, text=True, timeout=_CLONE_SEC, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCheckout(_advice(name, str(error))) from error
    if done.returncode != 0:
        raise NoCheckout(_advice(name, " ".join(done.stderr.split())))


def _advice(name: str, why: str) -> str:
    return f"cannot clone {_SOURCES[name]} ({why}); set {VARIABLE} to a directory with checkouts of dumb-init and tini"
