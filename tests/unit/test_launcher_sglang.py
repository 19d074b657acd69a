"""Command lines, environments and what else is planned for SGLang, one table for each topology.

Flags and rules are those of SGLang 0.5.23 (PyPI; files below are in sglang/srt), unless a line says otherwise.
"""

from __future__ import annotations

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
    LogLineCheck,
    Probe,
    Probes,
)
from tests.support.placements import plans, unit_of, value_of, with_args

SGLANG = Engine(launcher=Launcher.SGLANG, model="/models/qwen", base_port=30000)
INTERNAL, EXTERNAL = DataParallel.INTERNAL, DataParallel.EXTERNAL
SERVES = "--host 0.0.0.0 --port 30000"


@dataclass(frozen=True)
class Row:
    nnodes: int
    args: dict[str, ArgValue]
    ranks: list[str]
    """What follows `python3 -m sglang.launch_server --model-path MODEL` on each node, Args excepted."""
    mode: DataParallel = DataParallel.NONE
    epoch: int = 1
    role: str = "union"
    ports: list[list[int]] = field(default_factory=list)
    requests: int = 1


TOPOLOGIES = {
    "one node": Row(1, {"tp-size": 8}, [SERVES], ports=[[30000]]),
    # arg_groups/fields/parallel.py: --nnodes, --node-rank, --dist-init-addr. The other nodes' port is a dummy's
    # (entrypoints/engine.py, launch_dummy_health_check_server), so they are told it too.
    "tensor parallel over two nodes": Row(
        2,
        {"tp-size": 16},
        [f"{SERVES} --nnodes 2 --node-rank {rank} --dist-init-addr 10.0.0.1:29510" for rank in (0, 1)],
        ports=[[30000, 29510], [30000]],
    ),
    "the same in the next epoch": Row(
        2,
        {"tp-size": 8, "pp-size": 2},
        [f"{SERVES} --nnodes 2 --node-rank {rank} --dist-init-addr 10.0.0.1:29520" for rank in (0, 1)],
        epoch=2,
        ports=[[30000, 29520], [30000]],
    ),
    "replicas on one node": Row(1, {"dp-size": 4, "tp-size": 2}, [SERVES], INTERNAL, ports=[[30000]], requests=4),
    # server_args.py, PortArgs: on one node from the service port + 233 on.
    "attention data parallel on one node": Row(
        1,
        {"dp-size": 4, "tp-size": 8, "enable-dp-attention": True},
        [SERVES],
        INTERNAL,
        ports=[[30000, *range(30233, 30240)]],
        requests=4,
    ),
    # server_args.py, PortArgs: the rendezvous port and the six after it, all on node rank 0.
    "attention data parallel over two nodes": Row(
        2,
        {"attn-dp-size": 8, "tp-size": 16},
        [f"{SERVES} --nnodes 2 --node-rank {rank} --dist-init-addr 10.0.0.1:29510" for rank in (0, 1)],
        INTERNAL,
        ports=[[30000, *range(29510, 29517)], [30000]],
        requests=8,
    ),
    "prefill": Row(
        1,
        {"tp-size": 8},
        [f"{SERVES} --disaggregation-mode prefill --disaggregation-bootstrap-port 8998"],
        role="prefill",
        # managers/disagg_service.py: the bootstrap server is the prefill's.
        ports=[[30000, 8998]],
    ),
    "decode over two nodes": Row(
        2,
        {"tp-size": 16},
        [
            f"{SERVES} --nnodes 2 --node-rank {rank} --dist-init-addr 10.0.0.1:29510"
            " --disaggregation-mode decode --disaggregation-bootstrap-port 8998"
            for rank in (0, 1)
        ],
        role="decode",
        ports=[[30000, 29510], [30000]],
    ),
    "external: engines of their own": Row(2, {"tp-size": 8}, [SERVES, SERVES], EXTERNAL, ports=[[30000], [30000]]),
}


def engine_of(row: Row) -> Engine:
    return replace(SGLANG, args=tuple(row.args.items()), data_parallel=row.mode)


@pytest.mark.seed("S32")
@pytest.mark.seed("S22")
@pytest.mark.parametrize("row", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_the_command_line_of_every_rank(row: Row) -> None:
    found = plans(engine_of(row), row.nnodes, epoch=row.epoch, role=row.role)
    args = " ".join(f"--{name}" if value is True else f"--{name} {value}" for name, value in row.args.items())
    program = "python3 -m sglang.launch_server --model-path /models/qwen"
    assert [" ".join(plan.argv) for plan in found] == [f"{program} {rank} {args}" for rank in row.ranks]
    assert [list(plan.ports) for plan in found] == row.ports
    canary = found[0].probes.canary
    assert canary is not None
    assert canary.requests == row.requests


def test_names_args_and_extra_args() -> None:
    """Booleans are store_true (arg_groups/arg_utils.py): there is nothing that false could be."""
    engine = replace(
        SGLANG,
        served_model_names=("qwen",),
        args=(("context-length", 32768), ("enable-metrics", True), ("disable-radix-cache", False)),
        extra_args=("--tp", "2"),
    )
    (plan,) = plans(engine)
    assert plan.argv[3:] == (
        *("--model-path", "/models/qwen", "--served-model-name", "qwen", "--host", "0.0.0.0", "--port", "30000"),
        *("--context-length", "32768", "--enable-metrics", "--tp", "2"),
    )


def test_command_replaces_the_program() -> None:
    (plan,) = plans(replace(SGLANG, command=("sglang", "serve")))
    assert plan.argv[:3] == ("sglang", "serve", "--model-path")


# --- probes, canary, stop --------------------------------------------------------------------------------------------


def test_the_probes_of_the_server() -> None:
    """/health generates a token and may take 20 s to say that it cannot (SGLANG_HEALTH_CHECK_TIMEOUT)."""
    (plan,) = plans(SGLANG)
    health = HttpCheck("http://127.0.0.1:30000/health", expect_status=((200, 200),))
    assert plan.probes.readiness == Probe(health, period_sec=1.0, timeout_sec=25.0)
    assert plan.probes.liveness == Probe(health, period_sec=5.0, timeout_sec=25.0, failure_threshold=2)
    generate = HttpCheck("http://127.0.0.1:30000/health_generate", expect_status=((200, 200),))
    assert plan.probes.canary == Canary(
        check=generate, timeout_sec=30.0, failure_threshold=2, idle_sec=10.0, requests=1
    )


def test_a_follower_is_never_asked_over_http() -> None:
    """sglang#21486: it answers 200 whatever happens."""
    line = Probe(LogLineCheck("ready"))
    leader, follower = plans(with_args(SGLANG, tp_size=2), 2, fields={"probes": Probes(startup=line)})
    assert leader.serves_http
    assert not follower.serves_http
    assert follower.probes == Probes(startup=line)


def test_only_followers_wait_for_their_leader_s_word() -> None:
    """entrypoints/engine.py, sigterm_handler of node_rank >= 1."""
    assert [plan.ignores_kill_signal for plan in plans(with_args(SGLANG, tp_size=4), 4)] == [False, True, True, True]


# --- environment, hygiene, IPv6 --------------------------------------------------------------------------------------


def test_every_rank_is_told_its_address_and_interface() -> None:
    """utils/network.py: SGLANG_HOST_IP."""
    _, follower = plans(with_args(SGLANG, tp_size=2), 2, interface="eth1")
    assert follower.environment == {
        "SGLANG_HOST_IP": "10.0.0.2",
        "GLOO_SOCKET_IFNAME": "eth1",
        "NCCL_SOCKET_IFNAME": "=eth1",
        "HCCL_SOCKET_IFNAME": "eth1",
    }
    (alone,) = plans(SGLANG)
    assert alone.environment == {"SGLANG_HOST_IP": "10.0.0.1"}


def test_what_is_watched_and_swept() -> None:
    """Titles: setproctitle in managers/; segments: utils/stale_shm_cleanup.py."""
    (plan,) = plans(replace(SGLANG, shared_memory_patterns=("mine-*",)))
    assert set(plan.critical_processes) >= {"sglang::scheduler*", "sglang::detokenizer*"}
    assert set(plan.shared_memory_patterns) >= {"sgl_shm_*", "sglang_loads_*", "mine-*"}


def test_ipv6() -> None:
    leader, follower = plans(with_args(SGLANG, tp_size=2), 2, six=True)
    assert value_of(leader, "--host") == "::"
    assert value_of(follower, "--dist-init-addr") == "[fd00::1]:29510"


def test_several_nodes_need_a_port_to_meet_on() -> None:
    rank = Rank(node_rank=0, nnodes=2, port=30000, mgmt_port=30000, headless=False, pod_ip="10.0.0.1")
    with pytest.raises(CannotLaunch, match="told no master_port"):
        plan_launch(unit_of(with_args(SGLANG, tp_size=2)), rank)


# --- every gang --------------------------------------------------------------------------------------------------


@given(
    nnodes=st.integers(1, 8), tp=st.sampled_from([1, 2, 4, 8, 12]), dp=st.sampled_from([1, 2, 4]),
    mode=st.sampled_from([DataParallel.NONE, INTERNAL, EXTERNAL]), epoch=st.integers(1, 200),
    role=st.sampled_from(["union", "prefill", "decode", "encode"]),
)  # fmt: skip
def test_every_gang_meets_on_ports_of_its_own(
    nnodes: int, tp: int, dp: int, mode: DataParallel, epoch: int, role: str
) -> None:
    assume(mode is not DataParallel.NONE or dp == 1)
    assume(mode is EXTERNAL or (tp % nnodes == 0 and (dp % nnodes == 0 or nnodes % dp == 0)))
    engine = replace(with_args(SGLANG, attn_dp_size=dp, tp_size=tp), data_parallel=mode)
    found = plans(engine, nnodes, epoch=epoch, role=role)
    later = plans(engine, nnodes, epoch=epoch + 1, role=role)
    told = {value_of(plan, "--dist-init-addr") for plan in found}
    assert len(told) == 1
    assert told != {value_of(plan, "--dist-init-addr") for plan in later} or told == {None}
    assert (told == {None}) is (nnodes == 1 or mode is EXTERNAL)
    assert [plan.serves_http for plan in found] == [mode is EXTERNAL or rank == 0 for rank in range(nnodes)]
    for plan in found:
        assert len(set(plan.ports)) == len(plan.ports)
        assert ("--disaggregation-mode" in plan.argv) is (role in ("prefill", "decode"))
        assert plan.serves_http or plan.probes == Probes()
        assert value_of(plan, "--port") == "30000"
    rendezvous = [{port for port in plan.ports if 29500 <= port < 29600} for plan in found]
    assert not any(rendezvous[1:]), "node rank 0 alone binds them"
    assert rendezvous[0].isdisjoint(later[0].ports)
