"""The programs that render and check manifests, as `python -m tests.deploy.install_tools` brings them, or a skip."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.demo.engines import engines_directory

TIMEOUT_SEC = 60.0 * float(os.environ.get("PODVISOR_TEST_TIMEOUT_SCALE", "1"))
INSTALL = "python -m tests.deploy.install_tools"


def tools_directory() -> Path:
    return engines_directory() / "manifest-tools"


def tool(name: str) -> str:
    """The path of `kubectl`, `helm` or `kubernetes-validate`. Skips the test when it is not here."""
    found = shutil.which(name, path=str(tools_directory() / "bin"))
    if found is None:
        pytest.skip(f"no {name} in {tools_directory() / 'bin'}; `{INSTALL}` installs it")
    return found


def output_of(argv: Sequence[str]) -> str:
    """What the program says; AssertionError with its words when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_SEC)
    assert done.returncode == 0, f"{' '.join(argv)} exited {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout
