"""The `sglang` launcher.

Facts are those of SGLang 0.5.23 (PyPI; file names below are its, in sglang/srt). One server for all nodes: node rank
0 has HTTP, tokenizer and detokenizer, every node its schedulers. The other nodes' HTTP port answers 200 whatever
happens (sglang#21486), so it is never asked; they ignore SIGTERM and end when node rank 0 tells them to, or by
SIGKILL (entrypoints/engine.py).
"""

from __future__ import annotations

from supervisor.engine.launchers.arguments import arguments
from supervisor.engine.launchers.environment import SERVICE_LINK, Unwanted
from supervisor.engine.launchers.fabric import network_environment
from supervisor.engine.launchers.plan import (
    CannotLaunch,
    LaunchPlan,
    Rank,
    device_memory_probe,
    with_defaults,
    without_http,
)
from supervisor.unit.model import Canary, Engine, HttpCheck, Probe, Probes, Unit
from supervisor.unit.parallel import Sizes, Unreadable, independent, sizes_of

PROGRAM = ("python3", "-m", "sglang.launch_server")
DERIVED_PORTS = 7
"""server_args.py, PortArgs: with attention data parallelism the rendezvous port and the six after it."""
ALONE_ABOVE_PORT = 233
"""server_args.py, ZMQ_TCP_PORT_DELTA: on one node they lie so far above the service port instead."""
MAX_PORT = 65535

CRITICAL_PROCESSES = ("sglang::scheduler*", "sglang::detokenizer*", "sglang::data_parallel_controller*")
# utils/stale_shm_cleanup.py names most; the last two are of Python's multiprocessing.
SHARED_MEMORY = (
    "sgl_shm_*",
    "sglang_loads_*",
    "sglang_host_pool_*",
    "multi_tokenizer_args_*",
    "nccl-*",
    "psm_*",
    "sem.mp-*",
)
# server_args.py: ZMQ sockets at tempfile.NamedTemporaryFile names.
TEMPORARY_SOCKETS = ("tmp????????",)
# A compiler that was killed leaves its baton, and whoever comes after waits for ever (pytorch#189245, sglang#35989; the
# second is AITER's in SGLang's ROCm images, Hyperloom#138).
LOCKS = ("~/.cache/torch_extensions/*/*/lock", "/sgl-workspace/aiter/aiter/jit/build/lock_*")

UNWANTED = (
    Unwanted("SGLANG_*PORT", SERVICE_LINK, "an address that Kubernetes sets for a Service of that name"),
    Unwanted("SGL_*PORT", SERVICE_LINK, "an address that Kubernetes sets for a Service of that name"),
)


def plan(unit: Unit, rank: Rank) -> LaunchPlan:
    """Raise CannotLaunch."""
    engine = unit.engine
    assert engine is not None, f"{unit.name} is no engine"
    try:
        sizes = sizes_of(engine) or Sizes()
    except Unreadable as mistake:
        raise CannotLaunch(mistake.message) from mistake
    return LaunchPlan(
        argv=_argv(engine, sizes, rank),
        serves_http=not rank.headless,
        probes=without_http(unit.probes) if rank.headless else with_defaults(unit.probes, _probes(sizes, rank)),
        ports=(rank.port, *_own_ports(engine, sizes, rank), *engine.ports_to_free),
        start_after=engine.start_after,
        environment=network_environment("SGLANG_HOST_IP", rank.pod_ip, rank.fabric),
        unwanted=UNWANTED,
        ignores_kill_signal=rank.headless,
        critical_processes=engine.critical_processes or CRITICAL_PROCESSES,
        shared_memory_patterns=(*SHARED_MEMORY, *engine.shared_memory_patterns),
        lock_patterns=(*LOCKS, *engine.lock_patterns),
        temporary_sockets=TEMPORARY_SOCKETS,
        device_memory_probe=device_memory_probe(engine),
    )


def _argv(engine: Engine, sizes: Sizes, rank: Rank) -> tuple[str, ...]:
    """Headless nodes have a port too: what answers there is a dummy, but it would be 30000 on all of them."""
    names = engine.served_model_names
    return (
        *(engine.command or PROGRAM),
        *(("--model-path", engine.model) if engine.model else ()),
        *(("--served-model-name", names[0]) if names else ()),
        *("--host", rank.any_address, "--port", str(rank.port)),
        *(_as_node(rank) if _meets_others(engine, sizes, rank) else ()),
        *_disaggregation(rank),
        *arguments(engine.args),
        *engine.extra_args,
    )


def _meets_others(engine: Engine, sizes: Sizes, rank: Rank) -> bool:
    return rank.nnodes > 1 and not independent(engine, sizes)


def _as_node(rank: Rank) -> tuple[str, ...]:
    host = f"[{rank.master_addr}]" if ":" in rank.master_addr else rank.master_addr
    return (
        *("--nnodes", str(rank.nnodes), "--node-rank", str(rank.node_rank)),
        *("--dist-init-addr", f"{host}:{rank.meeting_port()}"),
    )


def _disaggregation(rank: Rank) -> tuple[str, ...]:
    """An encoder has flags of its own, which stand in Args."""
    if rank.role not in ("prefill", "decode"):
        return ()
    port = () if rank.bootstrap_port is None else ("--disaggregation-bootstrap-port", str(rank.bootstrap_port))
    return ("--disaggregation-mode", rank.role, *port)


def _own_ports(engine: Engine, sizes: Sizes, rank: Rank) -> tuple[int, ...]:
    """Of node rank 0, where ranks meet and where a prefill's bootstrap server listens."""
    if rank.headless:
        return ()
    bootstrap = (rank.bootstrap_port,) if rank.role == "prefill" and rank.bootstrap_port is not None else ()
    if not _meets_others(engine, sizes, rank):
        return (*(_derived_from(rank.port) if sizes.attention_only else ()), *bootstrap)
    first = rank.meeting_port()
    return (*range(first, first + (DERIVED_PORTS if sizes.attention_only else 1)), *bootstrap)


def _derived_from(port: int) -> range:
    first = port + ALONE_ABOVE_PORT
    if first + DERIVED_PORTS > MAX_PORT:
        first = port - ALONE_ABOVE_PORT
    return range(first, first + DERIVED_PORTS)


def _probes(sizes: Sizes, rank: Rank) -> Probes:
    """/health generates a token and answers 503 only after 20 s without one (SGLANG_HEALTH_CHECK_TIMEOUT)."""
    base = f"http://{rank.loopback}:{rank.port}"
    check = HttpCheck(url=f"{base}/health", expect_status=((200, 200),))
    return Probes(
        readiness=Probe(check, period_sec=1.0, timeout_sec=25.0),
        liveness=Probe(check, period_sec=5.0, timeout_sec=25.0, failure_threshold=2),
        canary=Canary(
            check=HttpCheck(url=f"{base}/health_generate", expect_status=((200, 200),)),
            timeout_sec=30.0,
            failure_threshold=2,
            idle_sec=10.0,
            requests=sizes.dp,
        ),
    )
