"""Who plays in the demo: the unit files of each pod, with the real programs where this machine has them.

A part that nobody real can play is played by a stand-in of ours, and `Cast.credits` says so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.demo import fallback_engine
from controller.demo.engines import (
    GGML_RPC_SERVER,
    LLAMA_SERVER,
    MOONCAKE_MASTER,
    NODE_EXPORTER,
    REDIS_SERVER,
    EngineMissing,
    Engines,
    tiny_model,
)
from controller.demo.pod import Pod
from controller.demo.tiny_model import Shape

ENGINE_PORT = 10000
RPC_PORT = 50052
READY_PERIOD_SEC = 0.1

LLAMA = """
[Unit]
Description = "llama-server with a tiny random model"
Requires = ["{store}"]
After = ["{store}"]

[Engine]
Launcher = "llama-server"
Model = "{model}"
BasePort = {port}
{rpc}
[Engine.Args]
ctx-size = 256
threads = 1

[Readiness]
Http = "http://127.0.0.1:${{PORT}}/health"
PeriodSec = {period}
"""

FALLBACK = """
[Unit]
Description = "podvisor's own small HTTP engine"
Requires = ["{store}"]
After = ["{store}"]

[Service]
ExecStart = ["{python}", "-I", "{program}", "--host=${{POD_IP}}", "--port=${{PORT}}", "--load-sec=0.3"]

[Engine]
Launcher = "exec"
BasePort = {port}

[Readiness]
Http = "http://${{POD_IP}}:${{PORT}}/health"
PeriodSec = {period}
"""

STAND_IN = """
[Unit]
Description = "stands in for a {what}: a process that only stays"

[Service]
ExecStart = ["sleep", "infinity"]
Restart = "always"
"""


@dataclass(frozen=True, slots=True)
class Cast:
    store: str
    """Name of the KV store's unit; the engine requires it."""
    monitor: str
    model: Path | None
    """None: the fallback engine plays."""
    as_pair: bool
    search_path: str
    credits: tuple[tuple[str, str], ...]
    """(part, who plays it), for people."""

    def units(self, pod: Pod, rpc_port: int) -> dict[str, str]:
        """Unit files by file name. All pods of a pair must be told the same `rpc_port`."""
        common = {"store": self.store, "port": pod.port(ENGINE_PORT), "period": READY_PERIOD_SEC}
        if self.model is not None:
            rpc = f"MgmtPort = {rpc_port}" if self.as_pair else ""
            engine = LLAMA.format(model=self.model, rpc=rpc, **common)
        else:
            engine = FALLBACK.format(python=sys.executable, program=fallback_engine.__file__, **common)
        return {
            "engine.toml": engine,
            f"{self.store}.toml": _shipped(self.store) or STAND_IN.format(what="KV store"),
            f"{self.monitor}.toml": _shipped(self.monitor) or STAND_IN.format(what="monitor"),
        }

    def environment(self, pod: Pod) -> Mapping[str, str]:
        """Where the shipped units listen: pods may share one network."""
        return {
            "REDIS_PORT": str(pod.port(6379)),
            "MOONCAKE_RPC_PORT": str(pod.port(50051)),
            "MOONCAKE_METRICS_PORT": str(pod.port(9003)),
            "NODE_EXPORTER_PORT": str(pod.port(9100)),
        }


async def choose_cast(engines: Engines, *, as_pair: bool) -> Cast:
    """Real programs first. Raises EngineMissing where only the real ones can play: the pair.

    Makes the model if it is not there yet, which takes a second.
    """
    if as_pair and GGML_RPC_SERVER in engines.missing:
        raise EngineMissing(engines.missing[GGML_RPC_SERVER])
    model, engine = await _engine(engines, as_pair=as_pair)
    store, store_played_by = _first_here(
        engines, ((REDIS_SERVER, "redis"), (MOONCAKE_MASTER, "mooncake-master")), "kv-store"
    )
    monitor, monitor_played_by = _first_here(engines, ((NODE_EXPORTER, "node-exporter"),), "monitor")
    credits_ = (("engine", engine), ("KV store", store_played_by), ("monitor", monitor_played_by))
    return Cast(store, monitor, model, as_pair, engines.search_path, credits_)


async def _engine(engines: Engines, *, as_pair: bool) -> tuple[Path | None, str]:
    try:
        if LLAMA_SERVER in engines.missing:
            raise EngineMissing(engines.missing[LLAMA_SERVER])
        model = await tiny_model(engines, Shape())
    except EngineMissing as missing:
        if as_pair:
            raise
        return None, f"a small HTTP engine of ours, not a real one: {missing}"
    size = f"{model.stat().st_size / 1e6:.1f} MB"
    halves = "llama-server --rpc in pod0, ggml-rpc-server in pod1" if as_pair else "llama-server"
    return model, f"{halves}, the real one; its model is random ({size}), so what it says is noise"


def _first_here(engines: Engines, known: tuple[tuple[str, str], ...], stand_in: str) -> tuple[str, str]:
    """(unit, who plays it): the first unit whose program is here, else the stand-in."""
    for program, unit in known:
        if program not in engines.missing:
            return unit, f"{program}, the real one"
    return stand_in, f"a process that only stays, nothing real: {engines.missing[known[0][0]]}"


def _shipped(unit: str) -> str | None:
    """The text of a unit file that podvisor ships: beside the packages in a checkout, else in the environment."""
    for directory in (Path(__file__).parents[2] / "units", Path(sys.prefix) / "share" / "podvisor" / "units"):
        path = directory / f"{unit}.toml"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return None
