"""What each launcher makes of a unit file and a placement: command lines and what is known of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from supervisor.engine.launchers import LaunchPlan, Rank, plan_launch, rank_of
from supervisor.engine.launchers.arguments import arguments
from supervisor.engine.launchers.plan import device_memory_probe
from supervisor.unit.model import (
    Canary,
    Command,
    Engine,
    ExecCheck,
    HttpCheck,
    Launcher,
    LogLineCheck,
    Probe,
    Probes,
    Repeat,
    Service,
    TcpCheck,
    Unit,
)
from supervisor.wire import Endpoint, StartCmdMsg

LLAMA = Engine(launcher=Launcher.LLAMA_SERVER, model="/models/tiny.gguf", base_port=8080)


def unit(engine: Engine, **fields: Any) -> Unit:
    return Unit(name="engine", source=Path("units/engine.toml"), engine=engine, **fields)


def placement(
    *, node_rank: int = 0, addresses: tuple[str, ...] = ("10.0.0.1",), dp_size: int = 1, port: str = "8080"
) -> StartCmdMsg:
    """As the controller places it: with fewer data-parallel ranks than nodes, node 0 serves, the others follow."""
    headless = dp_size < len(addresses) and node_rank > 0
    mine = Endpoint(id=node_rank, ip=addresses[node_rank], business_port=port, mgmt_port=port, headless=headless)
    return StartCmdMsg(
        job_name="job",
        role="union",
        instance_id=1,
        endpoints=(mine,),
        master_dp_ip=addresses[0],
        node_rank=node_rank,
        nnodes=len(addresses),
        node_addrs=addresses,
        dp_size=dp_size,
        epoch=1,
    )


def planned(engine: Engine, given: StartCmdMsg | None = None, **fields: Any) -> LaunchPlan:
    given = given or placement()
    return plan_launch(unit(engine, **fields), rank_of(given, pod_ip=given.node_addrs[given.node_rank]))


# --- [Engine.Args] --------------------------------------------------------------------------------------------------


@pytest.mark.seed("S32")
@pytest.mark.parametrize(
    "value, words",
    [
        ("qwen", ("--key", "qwen")),
        ("", ("--key", "")),
        (32768, ("--key", "32768")),
        (0, ("--key", "0")),
        (0.9, ("--key", "0.9")),
        (True, ("--key",)),
        (False, ()),
        (("a", "b c"), ("--key", "a", "b c")),
        ((), ("--key",)),
        (Repeat(("a", "b")), ("--key", "a", "--key", "b")),
        (Repeat(()), ()),
        ({"z": 1, "a": {"b": [1, 2]}}, ("--key", '{"a":{"b":[1,2]},"z":1}')),
    ],
)
def test_a_value_in_args_becomes_words(value: Any, words: tuple[str, ...]) -> None:
    assert arguments([("key", value)]) == words


def test_args_keep_their_order() -> None:
    assert arguments([("b", 1), ("a", True), ("c", "x")]) == ("--b", "1", "--a", "--c", "x")


# --- llama-server: one node -----------------------------------------------------------------------------------------


@pytest.mark.seed("S32")
def test_a_llama_server_alone() -> None:
    engine = replace(
        LLAMA,
        served_model_names=("tiny", "small"),
        args=(("ctx-size", 256), ("metrics", True), ("mlock", False)),
        extra_args=("-t", "1"),
    )
    plan = planned(engine)
    assert plan.argv == (
        *("llama-server", "--model", "/models/tiny.gguf", "--host", "0.0.0.0", "--port", "8080", "--alias", "tiny"),
        *("--ctx-size", "256", "--metrics", "-t", "1"),
    )
    assert plan.serves_http
    assert plan.ports == (8080,)
    assert plan.start_after == ()
    assert plan.environment == {}


def test_its_probes_fit_what_the_server_does() -> None:
    """503 while it loads, 200 when ready; only 200 is ready."""
    probes = planned(LLAMA).probes
    health = HttpCheck(url="http://127.0.0.1:8080/health", expect_status=((200, 200),))
    assert probes.readiness == Probe(health, period_sec=1.0, timeout_sec=1.0)
    assert probes.liveness == Probe(health, period_sec=5.0, timeout_sec=5.0, failure_threshold=3)
    assert probes.canary is None


def test_declared_probes_replace_the_launcher_s_one_by_one() -> None:
    mine = Probe(TcpCheck("127.0.0.1:8080"))
    startup = Probe(LogLineCheck("listening"))
    probes = planned(LLAMA, probes=Probes(startup=startup, liveness=mine)).probes
    assert probes.liveness == mine
    assert probes.startup == startup
    assert isinstance(probes.readiness, Probe)
    assert isinstance(probes.readiness.check, HttpCheck)


def test_the_placement_s_port_is_the_one_served_and_probed() -> None:
    plan = planned(LLAMA, placement(port="9090"))
    assert plan.argv[plan.argv.index("--port") + 1] == "9090"
    assert plan.ports == (9090,)
    assert plan.probes.readiness is not None
    assert isinstance(plan.probes.readiness.check, HttpCheck)
    assert plan.probes.readiness.check.url == "http://127.0.0.1:9090/health"


def test_command_replaces_the_program() -> None:
    plan = planned(replace(LLAMA, command=("numactl", "-N0", "/opt/llama/llama-server")))
    assert plan.argv[:4] == ("numactl", "-N0", "/opt/llama/llama-server", "--model")


def test_a_model_may_come_from_elsewhere() -> None:
    plan = planned(replace(LLAMA, model=None, args=(("hf-repo", "ggml-org/tiny"),)))
    assert "--model" not in plan.argv
    assert plan.argv[-2:] == ("--hf-repo", "ggml-org/tiny")


# --- llama-server: two nodes, one server and its worker -------------------------------------------------------------

TWO = ("10.0.0.1", "10.0.0.2")


def test_node_0_serves_and_waits_for_its_worker() -> None:
    """F22: started before its worker listens it would come up healthy without it."""
    plan = planned(replace(LLAMA, start_after=("tcp://store:6379",)), placement(addresses=TWO))
    assert plan.argv == (
        *("llama-server", "--model", "/models/tiny.gguf", "--host", "0.0.0.0", "--port", "8080"),
        *("--rpc", "10.0.0.2:50052", "--n-gpu-layers", "99"),
    )
    assert plan.start_after == ("tcp://store:6379", "tcp://10.0.0.2:50052")
    assert plan.serves_http


def test_the_other_node_works_for_it_and_serves_no_http() -> None:
    given = placement(node_rank=1, addresses=TWO)
    plan = planned(replace(LLAMA, args=(("metrics", True),), extra_args=("-t", "1")), given)
    assert plan.argv == ("ggml-rpc-server", "-H", "0.0.0.0", "-p", "50052")
    assert plan.ports == (50052,)
    assert not plan.serves_http
    assert plan.probes == Probes(), "a worker accepts one client at a time: it is never probed by connecting"
    assert plan.start_after == (), "else the two would wait for each other"


def test_both_sides_agree_on_another_rpc_port() -> None:
    engine = replace(LLAMA, mgmt_port=6000)
    server = planned(engine, placement(addresses=TWO))
    worker = planned(engine, placement(node_rank=1, addresses=TWO))
    assert "10.0.0.2:6000" in server.argv
    assert worker.argv[-1] == "6000"
    assert worker.ports == (6000,)


def test_the_user_s_own_number_of_layers_wins() -> None:
    """The program takes the last of a repeated flag."""
    plan = planned(replace(LLAMA, args=(("n-gpu-layers", 10),)), placement(addresses=TWO))
    assert plan.argv[-2:] == ("--n-gpu-layers", "10")


def test_three_nodes() -> None:
    three = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    plan = planned(LLAMA, placement(addresses=three))
    assert plan.argv[plan.argv.index("--rpc") + 1] == "10.0.0.2:50052,10.0.0.3:50052"
    assert plan.start_after == ("tcp://10.0.0.2:50052", "tcp://10.0.0.3:50052")


@pytest.mark.parametrize(
    "command, worker",
    [
        ((), "ggml-rpc-server"),
        (("llama-server",), "ggml-rpc-server"),
        (("/opt/llama/llama-server",), "/opt/llama/ggml-rpc-server"),
    ],
)
def test_the_worker_s_program_stands_beside_the_server_s(command: tuple[str, ...], worker: str) -> None:
    plan = planned(replace(LLAMA, command=command), placement(node_rank=1, addresses=TWO))
    assert plan.argv[0] == worker


# --- llama-server: two independent servers --------------------------------------------------------------------------


@pytest.mark.parametrize("node_rank", [0, 1])
def test_with_as_many_data_parallel_ranks_as_nodes_every_node_serves(node_rank: int) -> None:
    plan = planned(LLAMA, placement(node_rank=node_rank, addresses=TWO, dp_size=2))
    assert plan.argv[0] == "llama-server"
    assert "--rpc" not in plan.argv
    assert "--n-gpu-layers" not in plan.argv
    assert plan.start_after == ()
    assert plan.serves_http
    assert plan.probes.liveness is not None


# --- IPv6 -----------------------------------------------------------------------------------------------------------

SIX = ("fd00::1", "fd00::2")


def test_a_server_on_ipv6() -> None:
    plan = planned(LLAMA, placement(addresses=SIX))
    assert plan.argv[plan.argv.index("--host") + 1] == "::"
    assert plan.argv[plan.argv.index("--rpc") + 1] == "[fd00::2]:50052"
    assert plan.start_after == ("tcp://[fd00::2]:50052",)
    assert plan.probes.readiness is not None
    assert isinstance(plan.probes.readiness.check, HttpCheck)
    assert plan.probes.readiness.check.url == "http://[::1]:8080/health"


def test_a_worker_on_ipv6() -> None:
    plan = planned(LLAMA, placement(node_rank=1, addresses=SIX))
    assert plan.argv == ("ggml-rpc-server", "-H", "::", "-p", "50052")


# --- exec -----------------------------------------------------------------------------------------------------------

RUN = Service(exec_start=Command(("/opt/engine", "serve", "--quiet")))
EXEC = Engine(launcher=Launcher.EXEC, base_port=10000)

HTTP = Probe(HttpCheck("http://127.0.0.1:10000/health"))
TCP = Probe(TcpCheck("127.0.0.1:10000"))
SCRIPT = Probe(ExecCheck(Command(("/opt/check",))))
LINE = Probe(LogLineCheck("model loaded"))


@pytest.mark.seed("S32")
def test_exec_runs_what_the_file_says() -> None:
    plan = planned(EXEC, placement(port="10000"), service=RUN, probes=Probes(readiness=HTTP, liveness=TCP))
    assert plan.argv == ("/opt/engine", "serve", "--quiet")
    assert plan.ports == (10000,)
    assert plan.serves_http
    assert plan.probes == Probes(readiness=HTTP, liveness=TCP)


def test_exec_takes_an_engine_s_own_management_port_into_the_gate() -> None:
    given = placement(port="10000")
    rank = replace(rank_of(given, pod_ip="10.0.0.1"), mgmt_port=10001)
    assert plan_launch(unit(EXEC, service=RUN), rank).ports == (10000, 10001)


def test_a_headless_rank_keeps_the_probes_that_need_no_http() -> None:
    """Http and Tcp probes are skipped there; what looks at the process or its log stays (design 2)."""
    given = placement(node_rank=1, addresses=TWO, port="10000")
    declared = Probes(startup=LINE, readiness=HTTP, liveness=SCRIPT, canary=Canary())
    plan = planned(EXEC, given, service=RUN, probes=declared)
    assert not plan.serves_http
    assert plan.probes == Probes(startup=LINE, readiness=None, liveness=SCRIPT, canary=None)
    assert planned(EXEC, given, service=RUN, probes=Probes(startup=TCP, liveness=TCP)).probes == Probes()


# --- every launcher -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [placement(), placement(node_rank=1, addresses=TWO)], ids=["server", "worker"])
@pytest.mark.parametrize("engine", [LLAMA, EXEC], ids=["llama-server", "exec"])
def test_the_gate_s_list_is_the_launcher_s_and_the_file_s(engine: Engine, given: StartCmdMsg) -> None:
    engine = replace(
        engine,
        ports_to_free=(7000, 7001),
        shared_memory_patterns=("engine-*",),
        lock_patterns=("/tmp/engine.lock",),
        critical_processes=("engine-core*",),
        device_memory_probe=Command(("memory-is-back",)),
    )
    plan = planned(engine, given, service=RUN)
    assert plan.device_memory_probe == Command(("memory-is-back",))
    assert plan.ports[-2:] == (7000, 7001)
    assert plan.shared_memory_patterns == ("engine-*",)
    assert plan.lock_patterns == ("/tmp/engine.lock",)
    assert plan.critical_processes == ("engine-core*",)


@pytest.mark.parametrize(
    "launcher, declared, probe",
    [
        (Launcher.VLLM, None, "nvml"),
        (Launcher.SGLANG, None, "nvml"),
        (Launcher.SGLANG, "off", "off"),
        (Launcher.LLAMA_SERVER, None, "off"),
        (Launcher.EXEC, None, "off"),
        (Launcher.EXEC, "nvml", "nvml"),
    ],
)
def test_engines_for_gpus_have_their_device_memory_looked_at(
    launcher: Launcher, declared: str | None, probe: str
) -> None:
    assert device_memory_probe(Engine(launcher=launcher, device_memory_probe=declared)) == probe


def test_a_rank_as_the_launchers_see_it() -> None:
    given = placement(node_rank=1, addresses=("10.0.0.1", "10.0.0.2", "10.0.0.3"))
    assert rank_of(given, pod_ip="10.0.0.2") == Rank(
        node_rank=1,
        port=8080,
        mgmt_port=8080,
        nnodes=3,
        headless=True,
        followers=("10.0.0.2", "10.0.0.3"),
        dp_rank=1,
        pod_ip="10.0.0.2",
        master_addr="10.0.0.1",
    )
