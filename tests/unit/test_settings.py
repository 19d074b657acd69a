"""podvisor.toml to the supervisor's Settings; the mechanics of `settings_file` are tried here too."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.sections import FaultToleranceSection as ControllerFaultToleranceSection
from supervisor.identity import pod_of
from supervisor.settings import (
    FOREIGN,
    AuthSection,
    ConfigurationError,
    FaultToleranceSection,
    ParallelSection,
    Settings,
    SupervisorSection,
    load_settings,
    runtime_directories,
    shutdown_timeout,
)
from supervisor.unit.descent import DIAGNOSE_SEC
from supervisor.unit.model import Command, Dependencies, Engine, Service, ServiceType, StopSettings, Unit
from supervisor.unit.stop_budget import stop_budget


def _load(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> Settings:
    path = tmp_path / "podvisor.toml"
    path.write_text(text)
    return load_settings(path, environment or {})


def _complaints(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, text, environment)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


@pytest.mark.seed("S24")
def test_defaults() -> None:
    settings = load_settings(None, {})
    assert settings.supervisor == SupervisorSection(job_name="localhost")
    assert settings.supervisor.port == 1026
    assert settings.supervisor.probe_port == 1027
    assert settings.supervisor.heartbeat_interval_seconds == 3
    assert settings.supervisor.grace_period_sec == 120
    assert settings.supervisor.suicide_threshold == 5
    assert settings.fault_tolerance_config == FaultToleranceSection(
        enable_engine_relaunch=True,
        engine_restart_wait_timeout_sec=180,
        engine_restart_freeze_sec=720,
        engine_restart_freeze_silence_sec=60,
    )
    assert settings.parallel == ParallelSection(1, 1, 1, 1, 1)
    assert settings.auth == AuthSection(allow_anonymous=False)


def test_a_file_with_everything(tmp_path: Path) -> None:
    settings = _load(
        tmp_path,
        """
[supervisor]
pod_ip = "10.0.0.1"
host = "127.0.0.1"
port = 0
probe_port = 2
socket = "/s"
state_dir = "/d"
controller_url = ["http://a:1026", "https://b"]
job_name = "job"
model_name = "model"
role = "prefill"
nnodes = 2
node_index = 1
device_num = 8
heartbeat_interval_seconds = 1.5
grace_period_sec = "2min"
suicide_threshold = 3
shutdown_timeout_sec = 100
rendezvous_ports = "30000-30010"
log_level = "debug"
log_format = "json"
[fault_tolerance_config]
enable_engine_relaunch = false
engine_relaunch_poll_interval_sec = 1 # the controller's
[parallel]
tp_size = 4
[auth]
token_file = "/t"
[controller]
anything = 1
[instance]
""",
    )
    assert settings.supervisor == SupervisorSection(
        pod_ip="10.0.0.1",
        host="127.0.0.1",
        port=0,
        probe_port=2,
        socket="/s",
        state_dir="/d",
        controller_url=("http://a:1026", "https://b"),
        job_name="job",
        model_name="model",
        role="prefill",
        nnodes=2,
        node_index=1,
        device_num=8,
        heartbeat_interval_seconds=1.5,
        grace_period_sec=120.0,
        suicide_threshold=3,
        shutdown_timeout_sec=100.0,
        drain_delay_sec=5.0,
        rendezvous_ports=(30000, 30010),
        log_level="debug",
        log_format="json",
    )
    assert not settings.fault_tolerance_config.enable_engine_relaunch
    assert settings.parallel.tp_size == 4
    assert settings.auth.token_file == "/t"


def test_json_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "podvisor.json"
    path.write_text('{\n"supervisor": {"port": 5, "grace_period_sec": "1min"}}')
    assert load_settings(path, {}).supervisor.port == 5
    path.write_text('{\n"supervisor": {"port": 5,\n "prot": "1min"}}')
    with pytest.raises(ConfigurationError, match=r"podvisor\.json:3: supervisor\.prot: unknown key"):
        load_settings(path, {})


def test_variables_override_the_file(tmp_path: Path) -> None:
    environment = {
        "PODVISOR_SUPERVISOR__PORT": "7",
        "PODVISOR_SUPERVISOR__JOB_NAME": "8",
        "PODVISOR_SUPERVISOR__GRACE_PERIOD_SEC": "1min 1s",
        "PODVISOR_SUPERVISOR__CONTROLLER_URL": '["http://a", "http://b"]',
        "PODVISOR_SUPERVISOR__RENDEZVOUS_PORTS": "1-2",
        "PODVISOR_FAULT_TOLERANCE_CONFIG__ENABLE_ENGINE_RELAUNCH": "false",
        "PODVISOR_FAULT_TOLERANCE_CONFIG__MAX_CONCURRENT_RUNS": "not ours to judge",
        "PODVISOR_CONTROLLER__ANYTHING": "x",
        "PODVISOR_AUTH__ALLOW_ANONYMOUS": "true",
        "PODVISOR_SOCKET": "/not/an/override",
        "PODVISOR___X": "",
        "OTHER__X": "",
    }
    settings = _load(tmp_path, '[supervisor]\nport = 6\nmodel_name = "m"\n', environment)
    assert settings.supervisor.port == 7
    assert settings.supervisor.job_name == "8"
    assert settings.supervisor.model_name == "m"
    assert settings.supervisor.grace_period_sec == 61.0
    assert settings.supervisor.controller_url == ("http://a", "http://b")
    assert settings.supervisor.rendezvous_ports == (1, 2)
    assert not settings.fault_tolerance_config.enable_engine_relaunch


def test_one_url_needs_no_array(tmp_path: Path) -> None:
    environment = {
        "PODVISOR_SUPERVISOR__CONTROLLER_URL": "http://a:1",
        "PODVISOR_AUTH__ALLOW_ANONYMOUS": "true",
    }
    assert _load(tmp_path, "", environment).supervisor.controller_url == ("http://a:1",)


def test_all_mistakes_come_at_once_and_located(tmp_path: Path) -> None:
    text = """
[supervisor]
port = "x"
prot = 1
heartbeat_interval_seconds = "1h"
rendezvous_ports = "5-4"
controller_url = ["controller:1026"]
[supervisro]
[tls]
cert = 1
[fault_tolerance_config]
engine_relaunch_pol_interval_sec = 1
"""
    environment = {
        "PODVISOR_SUPERVISOR__NNODES": "many",
        "PODVISOR_SUPERVISOR__PROBE_PORT": "65536",
        "PODVISOR_SUPERVISOR__ROL": "x",
        "PODVISOR_SUPERVISRO__X": "x",
    }
    assert _complaints(tmp_path, text, environment) == [
        'podvisor.toml:3: supervisor.port: found "x", expected a whole number from 0 to 65535',
        "podvisor.toml:4: supervisor.prot: unknown key 'prot'; did you mean 'port'?",
        'podvisor.toml:5: supervisor.heartbeat_interval_seconds: found "1h", '
        'expected a duration such as "1min 30s" from 100ms to 1min',
        'podvisor.toml:6: supervisor.rendezvous_ports: found "5-4", '
        'expected a range of ports such as "29500-29599" (a range of ports from 1 to 65535)',
        'podvisor.toml:7: supervisor.controller_url: found ["controller:1026"], '
        'expected one or more URLs such as "http://controller:1026"',
        "podvisor.toml:8: supervisro: unknown section 'supervisro'; did you mean 'supervisor'?",
        "podvisor.toml:10: tls.cert: found 1, expected a string that is not empty",
        "podvisor.toml:12: fault_tolerance_config.engine_relaunch_pol_interval_sec: "
        "unknown key 'engine_relaunch_pol_interval_sec'; did you mean 'engine_relaunch_poll_interval_sec'?",
        'environment: PODVISOR_SUPERVISOR__NNODES: found "many", expected a whole number from 1 to 4096',
        "environment: PODVISOR_SUPERVISOR__PROBE_PORT: found 65536, expected a whole number from 0 to 65535",
        "environment: PODVISOR_SUPERVISOR__ROL: unknown key 'rol'; did you mean 'role'?",
        "environment: PODVISOR_SUPERVISRO__X: unknown section 'supervisro'; did you mean 'supervisor'?",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a = \n", "podvisor.toml:1: not TOML: Invalid value"),
        ("supervisor = 1\n", "podvisor.toml:1: supervisor: expected a table: [supervisor]"),
        ("[supervisor]\nport = 1\nprobe_port = 1\n",
         "podvisor.toml:3: supervisor.probe_port: must differ from port, which is 1 too"),
        ("[supervisor]\nport = 29501\n",
         "podvisor.toml:2: supervisor.port: 29501 is one of the rendezvous_ports, 29500 to 29599"),
        ("[fault_tolerance_config]\nengine_restart_freeze_sec = 180\n",
         "podvisor.toml:2: fault_tolerance_config.engine_restart_freeze_sec: "
         "180 s must be longer than engine_restart_wait_timeout_sec (180 s)"),
        ("[fault_tolerance_config]\nengine_restart_freeze_silence_sec = 721\n",
         "podvisor.toml:2: fault_tolerance_config.engine_restart_freeze_silence_sec: "
         "721 s must not be longer than engine_restart_freeze_sec (720 s)"),
        ("[supervisor]\nheartbeat_interval_seconds = 30\n",
         "podvisor.toml: fault_tolerance_config.engine_restart_freeze_silence_sec: "
         "60 s must be at least three heartbeats (90 s)"),
        ('[supervisor]\ncontroller_url = "http://a"\nhost = "0.0.0.0"\n',
         "podvisor.toml:3: supervisor.host: 0.0.0.0 can be reached from elsewhere: "
         "set auth.token_file or [tls], or auth.allow_anonymous = true"),
        ('[supervisor]\ncontroller_url = "http://a"\n',
         "podvisor.toml: supervisor.host: the pod's address can be reached from elsewhere: "
         "set auth.token_file or [tls], or auth.allow_anonymous = true"),
        ('[supervisor]\ncontroller_url = "http://a"\nhost = "::1"\nnnodes = 2\n',
         "podvisor.toml: supervisor.job_name: "
         "must be set: nothing in the environment tells which 2 pods belong together"),
        ('[supervisor]\ncontroller_url = "http://a"\nhost = "localhost"\nnode_index = 1\n',
         "podvisor.toml:4: supervisor.node_index: 1 must be below nnodes, which is 1"),
    ],
)  # fmt: skip
@pytest.mark.seed("S24")
def test_what_does_not_fit_together(tmp_path: Path, text: str, complaint: str) -> None:
    assert _complaints(tmp_path, text) == [complaint]


def test_a_relation_is_located_at_the_variable_that_broke_it(tmp_path: Path) -> None:
    environment = {"PODVISOR_SUPERVISOR__PROBE_PORT": "1"}
    assert _complaints(tmp_path, "[supervisor]\nport = 1\nprobe_port = 2\n", environment) == [
        "environment: PODVISOR_SUPERVISOR__PROBE_PORT: must differ from port, which is 1 too"
    ]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read: No such file or directory"):
        load_settings(tmp_path / "none.toml", {})
    (tmp_path / "binary.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="not UTF-8 at byte 0"):
        load_settings(tmp_path / "binary.toml", {})


@pytest.mark.parametrize("name", ["odd.toml", "odd.json"])
@pytest.mark.parametrize("value", ["9" * 5000, "9" * 400, f"{'[' * 200}{']' * 200}", f"{'[' * 100_000}{']' * 100_000}"])
def test_a_file_that_is_too_much_for_its_parser_is_a_wrong_file(name: str, value: str, tmp_path: Path) -> None:
    text = f'{{"supervisor": {{"port": {value}}}}}' if name == "odd.json" else f"[supervisor]\nport = {value}\n"
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError, match=rf"{name}.*: (cannot be read|tables and arrays|the integer)"):
        load_settings(tmp_path / name, {})


@pytest.mark.parametrize("value", ["9" * 5000, f"0x{'f' * 5000}", f"{'[' * 3000}{']' * 3000}", "nan", "1e999"])
def test_a_variable_that_is_too_much_for_a_parser_is_text(value: str) -> None:
    with pytest.raises(ConfigurationError, match="environment: PODVISOR_SUPERVISOR__PORT: found "):
        load_settings(None, {"PODVISOR_SUPERVISOR__PORT": value})


JOB_OF_TWO = {"PODVISOR_SUPERVISOR__JOB_NAME": "mine", "PODVISOR_SUPERVISOR__NNODES": "2"}
LWS = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "vllm-3.vllm.serving"}


@pytest.mark.parametrize(
    ("environment", "job_name", "nnodes", "node_index"),
    [
        ({}, "localhost", 1, None),
        ({"HOSTNAME": "web-7"}, "web-7", 1, None),
        ({"HOSTNAME": "h", "POD_NAME": "p"}, "p", 1, None),
        ({"POD_NAME": "vllm-3-1", **LWS}, "vllm-3", 2, 1),
        ({"POD_NAME": "sts-5", "POD_INDEX": "5"}, "sts-5", 1, 0),
        ({"POD_NAME": "sts-5", "POD_INDEX": "5", "PODVISOR_SUPERVISOR__NNODES": "2"}, "sts-2", 2, 1),
        ({"POD_NAME": "sts-5", "POD_INDEX": "5", "PODVISOR_SUPERVISOR__NNODES": "4"}, "sts-1", 4, 1),
        ({"POD_NAME": "job-1-x7", "JOB_COMPLETION_INDEX": "1"}, "job-1-x7", 1, 0),
        ({"JOB_COMPLETION_INDEX": "1", **JOB_OF_TWO}, "mine", 2, 1),
        ({"POD_NAME": "v-task-2", "VC_TASK_INDEX": "2"}, "v-task-2", 1, 0),
        ({"VC_TASK_INDEX": "1", **JOB_OF_TWO}, "mine", 2, 1),
        # An LWS leader is numbered twice: as pod 3 of the leaders' StatefulSet and as worker 0 of its group.
        ({"POD_NAME": "vllm-3", "POD_INDEX": "3", **LWS, "LWS_WORKER_INDEX": "0"}, "vllm-3", 2, 0),
        ({"POD_NAME": "vllm-3", **LWS, "LWS_GROUP_SIZE": "1", "LWS_WORKER_INDEX": "0"}, "vllm-3", 1, 0),
        # A Deployment's suffix may be a number and means nothing.
        ({"POD_NAME": "web-7d9f8-12345"}, "web-7d9f8-12345", 1, None),
        ({"POD_NAME": "web-7d9f8-12345", **JOB_OF_TWO}, "mine", 2, None),
        ({"POD_NAME": "v", "PODVISOR_SUPERVISOR__NODE_INDEX": "0", **LWS}, "vllm-3", 2, 0),
        ({"PODVISOR_SUPERVISOR__JOB_NAME": "mine", **LWS}, "mine", 2, 1),
    ],
)
def test_who_this_pod_is(environment: dict[str, str], job_name: str, nnodes: int, node_index: int | None) -> None:
    supervisor = load_settings(None, environment).supervisor
    assert (supervisor.job_name, supervisor.nnodes, supervisor.node_index) == (job_name, nnodes, node_index)


@pytest.mark.parametrize("name", ["web-7d9f8-12345", "sts-5"])
def test_without_an_index_no_instance_is_read_out_of_a_name(name: str) -> None:
    pod = pod_of({"POD_NAME": name})
    assert (pod.job_name(2), pod.node_index(2)) == (None, None)


def test_with_a_port_base_every_port_that_is_not_set_counts_from_it(tmp_path: Path) -> None:
    section = _load(tmp_path, "[supervisor]\nport_base = 20000\n").supervisor
    assert (section.port, section.probe_port, section.rendezvous_ports) == (20000, 20001, (20100, 20199))
    section = _load(tmp_path, "[supervisor]\nport_base = 20000\nprobe_port = 1027\n").supervisor
    assert (section.port, section.probe_port) == (20000, 1027)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", 0.0),
        ('controller_url = "http://a"\nhost = "::1"\n', 5.0),
        ('controller_url = "http://a"\nhost = "::1"\ndrain_delay_sec = 0\n', 0.0),
        ("drain_delay_sec = 3\n", 3.0),
    ],
)
def test_only_who_has_a_controller_waits_for_routers_unasked(tmp_path: Path, text: str, expected: float) -> None:
    assert _load(tmp_path, f"[supervisor]\n{text}").supervisor.drain_delay_sec == expected


def test_the_platform_says_the_rest() -> None:
    settings = load_settings(None, {"POD_IP": "10.1.1.1", "POD_NAMESPACE": "serving", "POD_UID": "u"})
    assert settings.supervisor.pod_ip == "10.1.1.1"
    assert (settings.pod.namespace, settings.pod.uid) == ("serving", "u")
    assert load_settings(None, {}).pod.namespace == "default"


def test_a_number_of_the_platform_that_is_none_is_told() -> None:
    with pytest.raises(ConfigurationError, match="environment: LWS_GROUP_SIZE: found 'two', expected a whole"):
        pod_of({"LWS_GROUP_SIZE": "two"})


def test_one_file_serves_both_programs() -> None:
    """Whatever the controller reads there, the supervisor knows to be its own or the controller's."""
    section = "fault_tolerance_config"
    ours = {field.name for field in fields(FaultToleranceSection)}
    assert {field.name for field in fields(ControllerFaultToleranceSection)} <= ours | (FOREIGN[section] or set())


def test_where_the_run_directory_may_be() -> None:
    assert runtime_directories({}, 5) == (Path("/run/podvisor"), Path("/tmp/podvisor-5"))
    assert runtime_directories({"TMPDIR": "/t"}, 5)[1] == Path("/t/podvisor-5")


def test_how_long_an_orderly_stop_may_take() -> None:
    stop = Service(stop=StopSettings(timeout_sec=10.0))
    store = Unit("store", Path("s"), service=stop)
    monitor = Unit("monitor", Path("m"), service=stop)
    engine = Unit("engine", Path("e"), service=stop, dependencies=Dependencies(after=("store",)), engine=Engine())
    section = SupervisorSection()
    assert shutdown_timeout(section, []) == 5.0
    assert shutdown_timeout(section, [store, monitor]) == 15.0
    assert shutdown_timeout(section, [store, monitor, engine]) == 25.0
    looked_at = replace(engine, engine=Engine(diagnose_exec=Command(("look",))))
    assert shutdown_timeout(section, [store, monitor, looked_at]) == 25.0 + DIAGNOSE_SEC
    assert shutdown_timeout(SupervisorSection(shutdown_timeout_sec=1.0), [engine]) == 1.0
    assert shutdown_timeout(SupervisorSection(drain_sec=60.0, drain_delay_sec=7.0), [store]) == 82.0


def test_the_slowest_chain_of_stops_counts_their_commands() -> None:
    stop, run = StopSettings(timeout_sec=10.0), (Command(("x",)),)
    slow = Unit("slow", Path("s"), service=Service(stop=stop, exec_stop=run, exec_stop_post=run))
    app = Unit("app", Path("a"), service=Service(stop=stop), dependencies=Dependencies(after=("slow",)))
    other = Unit("other", Path("o"), service=Service(stop=StopSettings(timeout_sec=39.0)))
    away = Unit(
        "away", Path("w"), service=Service(type=ServiceType.EXTERNAL), dependencies=Dependencies(after=("app",))
    )
    budget = stop_budget([slow, app, other, away])
    assert (budget.seconds, str(budget)) == (40.0, "app 10s, then slow 30s")
    assert stop_budget([]).seconds == 0.0
    endless = Unit("endless", Path("e"), service=Service(stop=StopSettings(timeout_sec=math.inf)))
    assert stop_budget([endless, app, slow]).chain == (("endless", math.inf),)


@pytest.mark.parametrize("url", ["http://a:99999", "http://a:b", "http://[::1"])
def test_a_url_whose_port_is_none_is_found_now_and_not_by_the_first_request(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="controller_url"):
        _load(tmp_path, f'[supervisor]\ncontroller_url = "{url}"\n', {})
