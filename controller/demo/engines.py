"""The real programs that the demo and the engine tests run: where they are, or why they are not there.

`make engines` (install_engines.py) and `make vllm` (install_vllm.py) put links to them into one directory, so
that unit files can name them plainly and PATH finds them.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from controller.demo.tiny_model import Shape

MODEL_TIMEOUT_SEC = 300.0
LLAMA_SERVER = "llama-server"
GGML_RPC_SERVER = "ggml-rpc-server"
MOONCAKE_MASTER = "mooncake_master"
MOONCAKE_CLIENT = "mooncake_client"
REDIS_SERVER = "redis-server"
NODE_EXPORTER = "prometheus-node-exporter"
REDIS_EXPORTER = "prometheus-redis-exporter"
REAL_MODEL = "gemma-3-270m-f16.gguf"
"""A small model that says real words; brought on request."""
VLLM = "vllm"
LMCACHE = "lmcache"
PROGRAMS: Mapping[str, str] = {
    LLAMA_SERVER: "make engines",
    GGML_RPC_SERVER: "make engines",
    MOONCAKE_MASTER: "make engines",
    MOONCAKE_CLIENT: "make engines",
    REDIS_SERVER: "make engines",
    NODE_EXPORTER: "make engines",
    REDIS_EXPORTER: "make engines",
    VLLM: "make vllm",
    LMCACHE: "make vllm",
}
"""Each with what installs it."""


class EngineMissing(RuntimeError):
    """A program that is needed is not on this machine."""


@dataclass(frozen=True)
class Engines:
    """What is here: `programs` by name, and for each that is not, `missing` has the reason."""

    directory: Path
    programs: Mapping[str, Path]
    missing: Mapping[str, str]

    @property
    def search_path(self) -> str:
        """The directory to put in front of a unit's PATH."""
        return str(self.directory / "bin")

    @property
    def models(self) -> Path:
        return self.directory / "models"


def engines_directory() -> Path:
    """PODVISOR_ENGINES, else .engines in a checkout, else the user's cache."""
    named = os.environ.get("PODVISOR_ENGINES")
    if named:
        return Path(named).absolute()
    project = Path(__file__).parents[2]
    if (project / "pyproject.toml").is_file():
        return project / ".engines"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podvisor" / "engines"


def vllm_directory(engines: Path) -> Path:
    """Where vLLM and LMCache have their environment."""
    return engines / "vllm"


def find_engines(directory: Path | None = None) -> Engines:
    """Looks only; installs nothing."""
    where = directory or engines_directory()
    looked_for = {program: _find(program, where / "bin") for program in PROGRAMS}
    programs = {program: path for program, path in looked_for.items() if path is not None}
    nowhere = f"neither in {where / 'bin'} nor on PATH"
    missing = {
        program: f"{program}: {nowhere}; `{installer}` installs it"
        for program, installer in PROGRAMS.items()
        if program not in programs
    }
    noted = _notes(where) | _notes(vllm_directory(where))
    return Engines(where, programs, missing | {program: noted[program] for program in missing if program in noted})


async def tiny_model(engines: Engines, shape: Shape) -> Path:
    """A random llama of that shape in GGUF, made once per shape. Raises EngineMissing.

    Made by the engines' own Python, because gguf and numpy have no business in podvisor's. A cancelled or
    failed run leaves no half-written model under the final name.
    """
    return await _made(engines, shape.file_name, shape, engines.directory / "venv", "make engines")


async def tiny_model_for_vllm(engines: Engines, shape: Shape) -> Path:
    """The same as a folder that vLLM serves, made by vLLM's Python. Raises EngineMissing."""
    return await _made(engines, shape.folder_name, shape, vllm_directory(engines.directory), "make vllm")


async def _made(engines: Engines, name: str, shape: Shape, environment: Path, installer: str) -> Path:
    model = engines.models / name
    if model.exists():
        return model
    python = environment / "bin" / "python"
    if not python.exists():
        raise EngineMissing(f"cannot make {model.name}: no {python}; `{installer}` installs it")
    engines.models.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).with_name("tiny_model.py")
    with trio.fail_after(MODEL_TIMEOUT_SEC):
        done = await trio.run_process(
            [str(python), "-I", str(script), str(model), *shape.arguments], check=False, capture_stderr=True
        )
    if done.returncode != 0:
        raise EngineMissing(f"cannot make {model.name}: {done.stderr.decode(errors='replace').strip()}")
    return model


def real_model(engines: Engines) -> Path:
    """The small real model. Raises EngineMissing."""
    model = engines.models / REAL_MODEL
    if not model.is_file():
        why = _notes(engines.directory).get(REAL_MODEL, "`make engines REAL_MODEL=yes` brings it")
        raise EngineMissing(f"no {model}: {why}")
    return model


def _find(program: str, directory: Path) -> Path | None:
    found = shutil.which(program, path=f"{directory}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    return Path(found) if found else None


def _notes(directory: Path) -> dict[str, str]:
    """Why the installer could not bring some of them, in its own words."""
    try:
        written = json.loads((directory / "missing.json").read_text())
    except FileNotFoundError:
        return {}
    return {str(program): str(reason) for program, reason in written.items()}
