"""Whether what an engine's table says goes together; the launchers vllm and sglang, mostly.

What the file says for itself is asked when it is read. What needs the pod (how many nodes, which role, which ports)
and strings without variables is asked by `supervisor.agreement`, for `podvisor verify` and before a run begins.
Every rule yields (path below [Engine], message).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from supervisor.unit.flags import Flag, flags_of, last_of, table_value
from supervisor.unit.model import DataParallel, Engine, Launcher
from supervisor.unit.parallel import Sizes, Unreadable, independent, ranks_of_gang, sizes_of
from supervisor.unit.toml_lines import KeyPath

Complaint = tuple[KeyPath, str]

KV_ROLES: Mapping[str, tuple[str, ...]] = {
    "prefill": ("kv_producer", "kv_both"),
    "decode": ("kv_consumer", "kv_both"),
    "union": ("kv_both",),
}
"""vLLM 0.32.0, config/kv_transfer.py. NIXL's both sides are kv_both."""


class PodFacts(msgspec.Struct, frozen=True):
    nnodes: int
    role: str
    rendezvous_ports: tuple[int, int]
    """First and last."""
    ports_per_epoch: int
    declared: Mapping[str, int]
    """[parallel] of the settings, by name; 1 is the default and says nothing."""


def file_complaints(engine: Engine) -> Iterator[Complaint]:
    """Without expansion and without the pod."""
    if engine.launcher in (Launcher.EXEC, Launcher.LLAMA_SERVER):
        if engine.data_parallel is not DataParallel.NONE:
            yield ("DataParallel",), f"the launcher {engine.launcher} has no flags for it: set [parallel] dp_size"
        if engine.local_ranks is not None:
            yield ("LocalRanks",), f"the launcher {engine.launcher} has no flags for it"
        return
    if engine.model is None:
        yield ("Model",), f"the launcher {engine.launcher} needs the path or the name of a model"
    if engine.local_ranks is not None and engine.data_parallel is DataParallel.NONE:
        yield ("LocalRanks",), "it counts data-parallel ranks: set DataParallel"
    if engine.launcher is Launcher.SGLANG:
        yield from _sglang_file(engine)
    else:
        yield from _vllm_file(engine)


def pod_complaints(engine: Engine, pod: PodFacts) -> Iterator[Complaint]:
    """`engine` has its variables expanded as far as they are known; what still has some is left alone."""
    if engine.role is not None and engine.role != pod.role:
        yield ("Role",), f"{engine.role!r} is not supervisor.role of the settings, which is {pod.role!r}"
    try:
        sizes = sizes_of(engine)
    except Unreadable as mistake:
        if "${" not in mistake.message:
            yield mistake.path, mistake.message
        return
    if sizes is None:
        return
    yield from _declared_twice(engine, sizes, pod)
    yield from _spread(engine, sizes, pod.nnodes)
    yield from _ports(engine, sizes, pod)
    if engine.launcher is Launcher.VLLM:
        yield from _backends(engine)
        yield from _kv_role(engine, pod.role)


# --- the file alone ---------------------------------------------------------------------------------------------


def _sglang_file(engine: Engine) -> Iterator[Complaint]:
    if len(engine.served_model_names) > 1:
        yield ("ServedModelName",), "SGLang serves its model under one name"
    if engine.data_parallel is DataParallel.HYBRID:
        message = 'SGLang has no such mode: "internal" is one server, "external" a server of its own in every pod'
        yield ("DataParallel",), message


def _vllm_file(engine: Engine) -> Iterator[Complaint]:
    for flag in flags_of(engine):
        if flag.name in ("api-server-count", "asc") and flag.path == ("ExtraArgs",):
            yield flag.path, f"write {flag.words} into Args: headless ranks refuse it, and the launcher leaves it out"


# --- the pod ----------------------------------------------------------------------------------------------------


def _declared_twice(engine: Engine, sizes: Sizes, pod: PodFacts) -> Iterator[Complaint]:
    own = {
        "dp_size": ranks_of_gang(engine, sizes, pod.nnodes),
        "tp_size": sizes.tp,
        "pp_size": sizes.pp,
        "pcp_size": sizes.pcp,
        "ep_size": sizes.ep,
    }
    for name, size in own.items():
        written = pod.declared.get(name, 1)
        if written not in (1, size):
            message = f"[parallel] {name} of the settings is {written}, the engine's flags say {size}"
            yield ("Args",), f"{message}: leave it out of the settings, which need it for the launcher exec only"


def _spread(engine: Engine, sizes: Sizes, nnodes: int) -> Iterator[Complaint]:
    mode, ranks = engine.data_parallel, ranks_of_gang(engine, sizes, nnodes)
    if mode is DataParallel.NONE and sizes.dp > 1:
        ways = '"internal" (one server for all of them)' + (', "hybrid" or "external"' if _has_modes(engine) else "")
        yield ("DataParallel",), f"the flags ask for {sizes.dp} data-parallel ranks: set it to {ways}"
        return
    if independent(engine, sizes):
        yield from _local_ranks(engine, sizes.dp)
        return
    if sizes.world % nnodes:
        yield ("Args",), f"{sizes.world} ranks (tensor, pipeline, data parallel) cannot be split over {nnodes} nodes"
    if ranks >= nnodes and ranks % nnodes:
        yield ("Args",), f"{ranks} data-parallel ranks cannot be split over {nnodes} nodes"
    elif ranks < nnodes and nnodes % ranks:
        yield ("Args",), f"{nnodes} nodes cannot be shared out among {ranks} data-parallel ranks"
    if mode is DataParallel.EXTERNAL and ranks != nnodes * engine.endpoints:
        message = f"every server is one data-parallel rank: {ranks} ranks need as many, and there are"
        yield ("DataParallel",), f"{message} {nnodes * engine.endpoints}"
    if mode is DataParallel.HYBRID and ranks < nnodes:
        yield ("DataParallel",), f"every node serves ranks of its own, and {ranks} are too few for {nnodes} nodes"
    if engine.launcher is Launcher.SGLANG and sizes.dp > 1 and nnodes > 1 and not sizes.attention_only:
        # arg_groups/validation_hook.py refuses dp_size > 1 with nnodes > 1.
        yield ("Args",), "over several nodes SGLang has attention data parallelism only: use attn-dp-size"
    yield from _local_ranks(engine, ranks // nnodes)


def _has_modes(engine: Engine) -> bool:
    return engine.launcher is Launcher.VLLM


def _local_ranks(engine: Engine, here: int) -> Iterator[Complaint]:
    if engine.local_ranks is None or engine.local_ranks == here:
        return
    has = f"{here} data-parallel ranks" if here else "a part of one data-parallel rank"
    yield ("LocalRanks",), f"found {engine.local_ranks}, but by its flags and the number of nodes every node has {has}"


def _ports(engine: Engine, sizes: Sizes, pod: PodFacts) -> Iterator[Complaint]:
    if pod.nnodes == 1:
        return
    first, last = pod.rendezvous_ports
    for key, port in (("BasePort", engine.base_port), ("BootstrapPort", engine.bootstrap_port)):
        if first <= port <= last:
            yield (key,), f"{port} is one of the rendezvous_ports of the settings, {first} to {last}"
    needed = rendezvous_ports_needed(engine, sizes)
    if pod.ports_per_epoch < needed:
        message = f"the rendezvous_ports of the settings, {first} to {last}, leave {pod.ports_per_epoch} for an epoch"
        yield ("Launcher",), f"{message}: {engine.launcher} needs {needed} here, so twice as many at least"


def rendezvous_ports_needed(engine: Engine, sizes: Sizes) -> int:
    """In one epoch, for ranks on several nodes: what the launchers count on from the block's first port."""
    if engine.launcher is Launcher.SGLANG:
        return 7 if sizes.attention_only else 1
    return 2


def _backends(engine: Engine) -> Iterator[Complaint]:
    for name in ("distributed-executor-backend", "data-parallel-backend"):
        flag = last_of(engine, name, *(("dpb",) if name.startswith("data") else ()))
        if flag is not None and flag.value == "ray":
            yield flag.path, "Ray places and restarts ranks itself, which podvisor does here: leave it out"


def _kv_role(engine: Engine, role: str) -> Iterator[Complaint]:
    allowed = KV_ROLES.get(role)
    if allowed is None:
        return
    config = last_of(engine, "kv-transfer-config")
    dotted = last_of(engine, "kv-transfer-config.kv-role")
    if config is None and dotted is None:
        if role != "union":
            yield ("Role",), f"{role} needs kv-transfer-config in Args, with kv_role {_either(allowed)}"
        return
    found = dotted.value if dotted is not None else _role_in(config)
    path = (dotted or config or Flag("", "", ("Args",), "")).path
    if found is None:
        yield path, "expected a table, or one as JSON, with kv_role"
    elif found not in allowed and "${" not in str(found):
        yield path, f"kv_role {found!r} does not fit the role {role}: expected {_either(allowed)}"


def _role_in(config: Flag | None) -> object:
    if config is None or "${" in str(config.value):
        return "${unknown}"
    table = table_value(config.value)
    return None if table is None else table.get("kv_role")


def _either(allowed: tuple[str, ...]) -> str:
    return " or ".join(allowed)
