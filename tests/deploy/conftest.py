"""What is deployed, made once for all tests here: wheels, the prefix, the file, the image."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.images import Python, pythons
from tests.deploy.podman import PROJECT, Podman, cannot_run_containers, open_podman

DEPLOY = PROJECT / "deploy"
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")


@pytest.fixture(scope="session")
def supported() -> list[Python]:
    """The Pythons of this machine that podvisor supports, the oldest first."""
    here = pythons()
    return [here[version] for version in SUPPORTED if version in here]


@pytest.fixture(scope="session")
def python(supported: list[Python]) -> Python:
    if not supported:
        pytest.skip("no Python 3.11 or newer in /usr/bin, /usr/local/bin or pyenv")
    return supported[0]


@pytest.fixture(scope="session")
def another_python(supported: list[Python]) -> Python:
    if len(supported) < 2:
        pytest.skip("this machine has one Python only: another image cannot have another")
    return supported[-1]


@pytest.fixture(scope="session")
def wheels(supported: list[Python], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of podvisor and what it needs, for the oldest and the newest Python here."""
    directory = tmp_path_factory.mktemp("wheels")
    versions = sorted({supported[0].version, supported[-1].version})
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["sh", str(DEPLOY / "wheels.sh"), str(directory), *versions]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the wheels cannot be fetched (without an index nothing here can run): {done.stderr}"
    return directory


@pytest.fixture(scope="session")
def prefix(python: Python, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("opt") / "podvisor"
    build = [str(python.program), str(DEPLOY / "prefix.py"), "--wheels", str(wheels), str(directory)]
    subprocess.run(build, check=True)
    return directory


@pytest.fixture(scope="session")
def pyz(python: Python, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = tmp_path_factory.mktemp("dist") / "podvisor.pyz"
    subprocess.run([str(python.program), str(DEPLOY / "pyz.py"), "--wheels", str(wheels), str(archive)], check=True)
    return archive


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    if reason := cannot_run_containers():
        pytest.skip(f"cannot run containers: {reason}")
    with open_podman() as opened:
        yield opened


@pytest.fixture(scope="session")
def base(podman: Podman, python: Python) -> str:
    return podman.base(python)


@pytest.fixture(scope="session")
def image(podman: Podman, base: str, wheels: Path) -> str:
    """That of deploy/Containerfile, by the name that deploy/pod.yaml has for it."""
    return podman.build("localhost/podvisor:0.1.0", base, "--build-context", f"wheels={wheels}")
