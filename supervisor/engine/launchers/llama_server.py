"""The `llama-server` launcher: a server, or on a headless node a worker that serves tensors to node rank 0 over RPC.

Facts (research/real-engines §3): the server binds its port at once and answers 503 while loading, 200 when ready;
started before an RPC worker listens it comes up healthy *without* it, so rank 0 waits for its workers' ports. A
worker accepts one client at a time with a short backlog: it is never probed by connecting to it. A dead worker
leaves `/health` at 200, so a worker's process is what is watched. The RPC port has no authentication.
"""

from __future__ import annotations

import os.path

from supervisor.engine.launchers.arguments import arguments
from supervisor.engine.launchers.plan import LaunchPlan, Rank, device_memory_probe, with_defaults, without_http
from supervisor.unit.model import Engine, HttpCheck, Probe, Probes, Unit

DEFAULT_RPC_PORT = 50052
"""llama.cpp's own default; `MgmtPort` replaces it."""


def plan(unit: Unit, rank: Rank) -> LaunchPlan:
    engine = unit.engine
    assert engine is not None, f"{unit.name} is no engine"
    return _worker(unit, engine, rank) if rank.headless else _server(unit, engine, rank)


def _server(unit: Unit, engine: Engine, rank: Rank) -> LaunchPlan:
    workers = tuple(f"{_bracketed(address)}:{_rpc_port(engine)}" for address in rank.followers)
    argv = (
        *_program(engine),
        *(("--model", engine.model) if engine.model else ()),
        *(("--host", rank.any_address, "--port", str(rank.port))),
        *(("--alias", engine.served_model_names[0]) if engine.served_model_names else ()),
        # Without offloaded layers the workers would hold nothing.
        *(("--rpc", ",".join(workers), "--n-gpu-layers", "99") if workers else ()),
        *arguments(engine.args),
        *engine.extra_args,
    )
    return LaunchPlan(
        argv=argv,
        serves_http=True,
        probes=with_defaults(unit.probes, _health(rank)),
        ports=(rank.port, *engine.ports_to_free),
        start_after=(*engine.start_after, *(f"tcp://{worker}" for worker in workers)),
        critical_processes=engine.critical_processes,
        shared_memory_patterns=engine.shared_memory_patterns,
        lock_patterns=engine.lock_patterns,
        device_memory_probe=device_memory_probe(engine),
    )


def _worker(unit: Unit, engine: Engine, rank: Rank) -> LaunchPlan:
    server = _program(engine)
    argv = (_beside(server[-1], "ggml-rpc-server"), "-H", rank.any_address, "-p", str(_rpc_port(engine)))
    return LaunchPlan(
        argv=argv,
        serves_http=False,
        probes=without_http(unit.probes),
        ports=(_rpc_port(engine), *engine.ports_to_free),
        start_after=engine.start_after,
        critical_processes=engine.critical_processes,
        shared_memory_patterns=engine.shared_memory_patterns,
        lock_patterns=engine.lock_patterns,
        device_memory_probe=device_memory_probe(engine),
    )


def _health(rank: Rank) -> Probes:
    check = HttpCheck(url=f"http://{rank.loopback}:{rank.port}/health", expect_status=((200, 200),))
    return Probes(
        readiness=Probe(check, period_sec=1.0, timeout_sec=1.0),
        liveness=Probe(check, period_sec=5.0, timeout_sec=5.0, failure_threshold=3),
    )


def _program(engine: Engine) -> tuple[str, ...]:
    return engine.command or ("llama-server",)


def _rpc_port(engine: Engine) -> int:
    return engine.mgmt_port or DEFAULT_RPC_PORT


def _beside(program: str, name: str) -> str:
    """llama.cpp installs its programs in one directory; a bare name is looked up in PATH like the server's."""
    directory = os.path.dirname(program)
    return os.path.join(directory, name) if directory else name


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
