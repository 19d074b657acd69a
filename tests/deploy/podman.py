"""podman with a store of its own: containers out of images that this machine makes itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from controller.demo.sandbox import can_use_namespaces
from tests.deploy.images import Python, root_file_system
from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import Running, program

PROJECT = Path(__file__).parents[2]
CONTAINERFILE = PROJECT / "deploy" / "Containerfile"
LIMIT = 20_000
"""podman asks for more descriptors and processes than a machine without CAP_SYS_RESOURCE may give."""
CONFIGURATION = f"""
[containers]
default_ulimits = ["nofile={LIMIT}:{LIMIT}", "nproc={LIMIT}:{LIMIT}"]
no_hosts = true
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
PROGRAMS = ("podman", "runc", "catatonit")


def cannot_run_containers() -> str | None:
    """Why not; None: they can be run."""
    if reason := can_use_namespaces():
        return reason
    search = f"{os.environ['PATH']}:/usr/libexec/podman"
    if missing := [name for name in PROGRAMS if shutil.which(name, path=search) is None]:
        return f"{', '.join(missing)} not installed (Debian: podman runc catatonit)"
    return None


class Podman:
    def __init__(self, directory: Path) -> None:
        self._configuration = directory / "containers.conf"
        self._configuration.write_text(CONFIGURATION)
        self._store = ("--root", str(directory / "graph"), "--runroot", str(directory / "run"))

    def command(self, *arguments: str) -> list[str]:
        """To be run with the environment of this process."""
        return ["env", f"CONTAINERS_CONF={self._configuration}", "podman", *self._store, *arguments]

    def __call__(self, *arguments: str, check: bool = True, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """Its end, with what it said; with `check` one that failed raises with that."""
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, timeout=2 * TIMEOUT_SEC, check=False
        )
        said = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
        assert not check or done.returncode == 0, f"podman {' '.join(arguments)}: {said.stdout}{said.stderr}"
        return said

    def base(self, python: Python) -> str:
        """The name of an image that holds little more than this Python."""
        name = f"localhost/base:{python.version}"
        self("import", "--quiet", "-", name, stdin=root_file_system(python))
        return name

    def build(self, name: str, base: str, *arguments: str, containerfile: Path = CONTAINERFILE) -> str:
        given = ("--network", "none", "--build-arg", f"BASE={base}", *arguments)
        self("build", "--quiet", *given, "--file", str(containerfile), "--tag", name, str(PROJECT))
        return name

    def state(self, name: str) -> dict[str, object]:
        (inspected,) = json.loads(self("inspect", name).stdout)
        return {**inspected["State"], "RestartCount": inspected["RestartCount"]}

    def log(self, name: str) -> str:
        done = self("logs", name)
        return done.stdout + done.stderr

    @asynccontextmanager
    async def running(self, name: str, *arguments: str) -> AsyncIterator[Running]:
        """`podman run` and what the container says; it is gone afterwards."""
        try:
            async with program(*self.command("run", "--network", "none", "--name", name, *arguments)) as running:
                try:
                    yield running
                finally:
                    # While podman watches over it, which the end of `program` ends.
                    self("rm", "--force", "--time", "0", name, check=False)
        finally:
            self("rm", "--force", "--time", "0", name, check=False)


@contextmanager
def open_podman() -> Iterator[Podman]:
    """Nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="podvisor-podman-") as directory:
        # In memory, because podman waits for the disk after every layer.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "podvisor-podman", directory], check=True)
        try:
            podman = Podman(Path(directory))
            try:
                yield podman
            finally:
                podman("rm", "--all", "--force", "--time", "0", check=False)
        finally:
            subprocess.run(["umount", "--recursive", directory], check=True)
