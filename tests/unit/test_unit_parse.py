"""Unit files to units, and the words for every mistake."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from supervisor.unit.errors import ConfigurationError
from supervisor.unit.layers import layer
from supervisor.unit.model import (
    Command,
    Conditions,
    Dependencies,
    Engine,
    EngineStart,
    ExecCheck,
    Execution,
    HttpCheck,
    KillMode,
    Launcher,
    LivenessAction,
    Logging,
    LogLineCheck,
    Probe,
    Probes,
    ResourceLimit,
    RestartPolicy,
    RestartSettings,
    RestartWith,
    Service,
    ServiceType,
    StartLimitAction,
    StartSettings,
    StopSettings,
    TcpCheck,
    Unit,
)
from supervisor.unit.parse import load_units, parse
from supervisor.unit.toml_lines import read_toml

HERE = Path("u.toml")


def _parse(text: str) -> Unit:
    unit, problems = parse("u", layer(HERE, read_toml(text, HERE)))
    assert problems == []
    return unit


def _complaints(text: str) -> list[str]:
    _, problems = parse("u", layer(HERE, read_toml(text, HERE)))
    return [str(problem) for problem in problems]


def test_every_key_that_is_carried_out_finds_its_place() -> None:
    unit = _parse("""
[Unit]
Description = "all"
Documentation = "https://example.com"
After = ["a"]
Before = ["b"]
Requires = "c"
Wants = ["d", "e"]
ConditionNodeRank = 0
ConditionEnvironment = ["A=1", "!B"]
ConditionPathExists = "/x"
[Service]
Type = "exec"
ExecStart = ["-main", "x"]
ExecStartPre = [["pre1"], ["-pre2", "y"]]
ExecStartPost = ["post"]
ExecStop = ["stop"]
ExecStopPost = [["stop-post"]]
Restart = "always"
RestartSec = "1s"
RestartSteps = 3
RestartMaxDelaySec = "1min"
RestartJitter = 0.5
RestartResetSec = "2min"
StartLimitBurst = 2
StartLimitIntervalSec = 30
StartLimitAction = "exit"
SuccessExitStatus = [3]
RestartPreventExitStatus = ["SIGABRT"]
RestartForceExitStatus = [4]
TimeoutStartSec = 10
TimeoutStopSec = 11
RelaunchTimeoutStopSec = 12
StartStallSec = 13
StartCpuOnlySec = 14
KillMode = "control-group"
KillSignal = "INT"
FinalKillSignal = "SIGQUIT"
SendSIGKILL = false
WorkingDirectory = "/w"
User = "u"
Group = "g"
SupplementaryGroups = ["h"]
UMask = "0027"
EnvironmentFile = "-/env"
PassEnvironment = ["P"]
UnsetEnvironment = ["U"]
LimitNOFILE = "1:2"
LimitCORE = "infinity"
Nice = -5
OOMScoreAdjust = 500
CPUAffinity = "0-1"
StandardOutput = "json"
StandardError = "file:/log"
LogRateLimitIntervalSec = 1
LogRateLimitBurst = 100
LogRotateSize = "1MB"
LogRotateKeep = 2
LogTailBytes = "1KiB"
[Service.Environment]
A = "1"
[Startup]
LogLine = "ready$"
[Readiness]
Http = "http://a/b"
PeriodSec = 2
TimeoutSec = 3
FailureThreshold = 4
SuccessThreshold = 5
InitialDelaySec = 6
[Liveness]
Exec = ["check"]
OnFailure = "none"
""")
    assert unit == Unit(
        "u",
        HERE,
        description="all",
        documentation=("https://example.com",),
        dependencies=Dependencies(after=("a",), before=("b",), requires=("c",), wants=("d", "e")),
        conditions=Conditions(node_rank=0, environment=("A=1", "!B"), path_exists=("/x",)),
        service=Service(
            type=ServiceType.EXEC,
            exec_start=Command(("main", "x"), ignore_failure=True),
            exec_start_pre=(Command(("pre1",)), Command(("pre2", "y"), ignore_failure=True)),
            exec_start_post=(Command(("post",)),),
            exec_stop=(Command(("stop",)),),
            exec_stop_post=(Command(("stop-post",)),),
            restart=RestartSettings(
                policy=RestartPolicy.ALWAYS,
                delay_sec=1.0,
                steps=3,
                max_delay_sec=60.0,
                jitter=0.5,
                reset_sec=120.0,
                limit_burst=2,
                limit_interval_sec=30.0,
                limit_action=StartLimitAction.EXIT,
                success_exit_status=(0, 3),
                prevent_exit_status=("SIGABRT",),
                force_exit_status=(4,),
            ),
            stop=StopSettings(
                kill_mode=KillMode.CONTROL_GROUP,
                kill_signal="SIGINT",
                final_kill_signal="SIGQUIT",
                send_sigkill=False,
                timeout_sec=11.0,
                relaunch_timeout_sec=12.0,
            ),
            start=StartSettings(timeout_sec=10.0, stall_sec=13.0, cpu_only_sec=14.0),
            execution=Execution(
                working_directory="/w",
                user="u",
                group="g",
                supplementary_groups=("h",),
                umask=0o027,
                environment=(("A", "1"),),
                environment_files=("-/env",),
                pass_environment=("P",),
                unset_environment=("U",),
                limits=(ResourceLimit("NOFILE", 1, 2), ResourceLimit("CORE", math.inf, math.inf)),
                nice=-5,
                oom_score_adjust=500,
                cpu_affinity=frozenset({0, 1}),
            ),
            logging=Logging(
                stdout="json",
                stderr="file:/log",
                rate_limit_interval_sec=1.0,
                rate_limit_burst=100,
                rotate_size=1_000_000,
                rotate_keep=2,
                tail_bytes=1024,
            ),
        ),
        probes=Probes(
            startup=Probe(LogLineCheck("ready$")),
            readiness=Probe(HttpCheck("http://a/b"), 2.0, 3.0, 4, 5, 6.0),
            liveness=Probe(ExecCheck(Command(("check",))), period_sec=10.0, timeout_sec=3.0),
            liveness_action=LivenessAction.NONE,
        ),
    )


def test_an_engine() -> None:
    unit = _parse("""
[Engine]
Launcher = "llama-server"
Model = "/m"
ServedModelName = ["a", "b"]
Command = ["/bin/llama-server"]
ExtraArgs = ["-t", "1"]
BasePort = 1
MgmtPort = 2
BootstrapPort = 3
Role = "decode"
Start = "controller"
StartAfter = ["tcp://a:1"]
RestartWith = "local"
CriticalProcesses = ["worker*"]
SharedMemoryPatterns = ["psm_*"]
PortsToFree = [4]
LockPatterns = ["/tmp/*.lock"]
DeviceMemoryProbe = "off"
Endpoints = 1
[Engine.Args]
ctx-size = 256
metrics = true
""")
    assert unit.engine == Engine(
        launcher=Launcher.LLAMA_SERVER,
        model="/m",
        served_model_names=("a", "b"),
        command=("/bin/llama-server",),
        args=(("ctx-size", 256), ("metrics", True)),
        extra_args=("-t", "1"),
        base_port=1,
        mgmt_port=2,
        bootstrap_port=3,
        role="decode",
        start=EngineStart.CONTROLLER,
        start_after=("tcp://a:1",),
        restart_with=RestartWith.LOCAL,
        critical_processes=("worker*",),
        shared_memory_patterns=("psm_*",),
        ports_to_free=(4,),
        lock_patterns=("/tmp/*.lock",),
        device_memory_probe="off",
    )


@pytest.mark.parametrize(
    ("text", "timeout_sec", "stall_sec"),
    [
        ('[Service]\nExecStart = ["a"]', 90.0, None),
        ('[Service]\nType = "oneshot"\nExecStart = ["a"]', math.inf, None),
        ('[Service]\nType = "oneshot"\nExecStart = ["a"]\nTimeoutStartSec = 5', 5.0, None),
        ('[Service]\nExecStart = ["a"]\n[Engine]', 3600.0, 300.0),
        ('[Service]\nExecStart = ["a"]\nStartStallSec = 1\nTimeoutStartSec = 2\n[Engine]', 2.0, 1.0),
    ],
)
def test_how_long_a_start_may_take_depends_on_the_kind(text: str, timeout_sec: float, stall_sec: float | None) -> None:
    start = _parse(text).service.start
    assert (start.timeout_sec, start.stall_sec) == (timeout_sec, stall_sec)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[Service]\nExecStart = ["a"]', 3.0),
        ('[Service]\nExecStart = ["a"]\n[Engine]', 1.0),
        ('[Service]\nExecStart = ["a"]\nRelaunchTimeoutStopSec = 7\n[Engine]', 7.0),
    ],
)
def test_how_long_a_relaunch_waits_for_a_stop_depends_on_the_kind(text: str, expected: float) -> None:
    assert _parse(text).service.stop.relaunch_timeout_sec == expected


@pytest.mark.parametrize(
    ("keys", "check"),
    [
        ('Http = "http://a"', HttpCheck("http://a")),
        ('Http.Url = "http://a"\nHttp.Method = "PUT"', HttpCheck("http://a", "PUT")),
        (
            'Http = { Url = "http://a", Body = "{}" }',
            HttpCheck("http://a", "POST", (("Content-Type", "application/json"),), "{}"),
        ),
        (
            'Http = { Url = "http://a", Body = "x", Method = "PUT", Headers = { content-type = "text/plain" } }',
            HttpCheck("http://a", "PUT", (("content-type", "text/plain"),), "x"),
        ),
        (
            'Http = { Url = "http://a", ExpectStatus = [200, "204-206"], ExpectBody = "ok" }',
            HttpCheck("http://a", expect_status=((200, 200), (204, 206)), expect_body="ok"),
        ),
        ('Tcp = "a:1"', TcpCheck("a:1")),
        (
            "Tcp = { Address = 'a:1', Send = \"PING\\r\\n\", Expect = '\\+PONG' }",
            TcpCheck("a:1", "PING\r\n", r"\+PONG"),
        ),
        ('Exec = ["-a", "b"]', ExecCheck(Command(("a", "b"), ignore_failure=True))),
        ('LogLine = "up"', LogLineCheck("up")),
    ],
)
def test_checks(keys: str, check: object) -> None:
    readiness = _parse(f'[Service]\nExecStart = ["a"]\n[Readiness]\n{keys}').probes.readiness
    assert readiness is not None
    assert readiness.check == check
    assert (readiness.period_sec, readiness.timeout_sec) == (1.0, 1.0)


START = '[Service]\nExecStart = ["a"]\n'
EXTERNAL = '[Service]\nType = "external"\n'


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("", ['u.toml: Service: the key ExecStart is missing: an argument array such as ["sleep", "5"]']),
        ("[Engine]", ['u.toml: Service: the key ExecStart is missing: an argument array such as ["sleep", "5"]']),
        ("[Sevice]", ["u.toml:1: Sevice: unknown section 'Sevice'; did you mean 'Service'?"]),
        ("x = 1", [
            "u.toml:1: x: unknown section 'x'; known are "
            "Canary, Engine, Liveness, Readiness, Service, Startup, Unit"
        ]),
        ("Service = 1", ["u.toml:1: Service: found 1, expected a table"]),
        (START + "execstop = 1", ["u.toml:3: Service.execstop: unknown key 'execstop'; did you mean 'ExecStop'?"]),
        (
            START + "MemoryMax = 1",
            ["u.toml:3: Service.MemoryMax: unknown key 'MemoryMax', which is systemd's: limits of cpu, memory and tasks"
            " are the pod's resources; LimitX and Nice are a unit's"],
        ),
        (
            START + "CPUAfinity = 1",
            ["u.toml:3: Service.CPUAfinity: unknown key 'CPUAfinity'; did you mean 'CPUAffinity'?"],
        ),
        (
            "[Install]",
            ["u.toml:1: Install: unknown section 'Install', which is systemd's: every unit in a directory of units is"
            " started; requirements are written into the unit that has them"],
        ),
        (START + "Nice = 99", ["u.toml:3: Service.Nice: found 99, expected a whole number from -20 to 19"]),
        (START + '[Readiness]\nLogLine = "up"\n[Canary]\nEnabled = true', [
            "u.toml:5: Canary: the key Http is missing: only the engine's user knows a request that makes it work"
        ]),
        (START + '[Canary]\nHttp = "http://a/work"', [
            "u.toml:3: Canary: sent only to what has been ready once: add [Readiness], "
            "or it would find what still loads"
        ]),
        (START + "[Engine]\nEndpoints = 2\nBasePort = 65534", [
            "u.toml:4: Engine.Endpoints: endpoint 1 would have service port 65536: at most 65535"
        ]),
        (START + "[Engine]\nEndpoints = 2\nMgmtPort = 65535", [
            "u.toml:4: Engine.Endpoints: endpoint 1 would have management port 65537: at most 65535"
        ]),
        (START + '[Engine]\nRecoverHttp = "http://a"\nRecoverExec = ["b"]', [
            "u.toml:5: Engine.RecoverExec: the engine is asked to recover in one way: by RecoverHttp or by RecoverExec"
        ]),
        (START + '[Engine]\nRestoreExec = ["b"]', [
            "u.toml:4: Engine.RestoreExec: nothing would say when the snapshot is restored: add [Readiness]"
        ]),
        (START + "[Readiness]\nPeriodSec = 1", [
            "u.toml:3: Readiness: found none, expected exactly one of Http, Tcp, Exec, LogLine"
        ]),
        (START + '[Startup]\nTcp = "a:1"\nLogLine = "x"', [
            "u.toml:3: Startup: found Tcp and LogLine, expected exactly one of Http, Tcp, Exec, LogLine"
        ]),
        (START + '[Startup]\nTcp = "a:1"\nFailureThreshold = 30', [
            "u.toml:5: Startup.FailureThreshold: a start is given up by Service.TimeoutStartSec and StartStallSec "
            "alone, however often this fails"
        ]),
        (START + '[Readiness]\nLogLine = "up"\nPeriodSec = 2\nInitialDelaySec = 1', [
            "u.toml:5: Readiness.PeriodSec: a line is waited for, not asked for: this means nothing beside LogLine"
        ]),
        (START + "[Readiness.Http]\nMethod = 'GET'", [
            "u.toml:3: Readiness.Http: the key Url is missing: what is asked"
        ]),
        (START + "[Readiness.Http]\nUrl = 'x'\nHost = 'y'", [
            'u.toml:4: Readiness.Http.Url: found "x", expected a URL such as "http://127.0.0.1:8000/health"',
            "u.toml:5: Readiness.Http.Host: unknown key 'Host'; "
            "known are Body, ExpectBody, ExpectStatus, Headers, Method, Url",
        ]),
        (START + '[Liveness]\nLogLine = "x"', [
            "u.toml:4: Liveness.LogLine: a line that was logged once says nothing about now"
        ]),
        (START + '[Liveness]\nTcp = "a:1"\nOnFailure = "report"', [
            'u.toml:5: Liveness.OnFailure: only an engine is reported to a controller: use "restart" or "none"'
        ]),
        (EXTERNAL, [
            'u.toml:2: Service.Type: a unit of Type "external" is known by its probes only: add [Readiness]'
        ]),
        (EXTERNAL + 'ExecStart = ["a"]\n[Readiness]\nLogLine = "x"', [
            'u.toml:3: Service.ExecStart: a unit of Type "external" has no process of ours',
            'u.toml:5: Readiness.LogLine: a unit of Type "external" has no output of ours',
        ]),
        (EXTERNAL + '[Readiness]\nTcp = "a:1"\n[Engine]', [
            'u.toml:2: Service.Type: an engine is a process that stays: expected "exec"'
        ]),
        (START + 'Type = "oneshot"\nRestart = "always"\n[Readiness]\nTcp = "a:1"', [
            'u.toml:4: Service.Restart: a unit of Type "oneshot" that restarts after success never ends',
            'u.toml:5: Readiness: a unit of Type "oneshot" has started when it has ended: it cannot be probed',
        ]),
        (START + 'NotifyAccess = "main"', [
            'u.toml:3: Service.NotifyAccess: there is no NOTIFY_SOCKET but with Type "notify" or WatchdogSec'
        ]),
        (START + "RemainAfterExit = true", [
            'u.toml:3: Service.RemainAfterExit: only a unit of Type "oneshot" can stay active without a process'
        ]),
        (START + "RestartSec = 60", [
            "u.toml:3: Service.RestartSec: RestartSec is above RestartMaxDelaySec: 60s and 30s"
        ]),
        (START + "RestartMaxDelaySec = 0", [
            "u.toml:3: Service.RestartMaxDelaySec: RestartSec is above RestartMaxDelaySec: 0.1s and 0s"
        ]),
        (START + '[Engine]\nLauncher = "llama-server"', [
            "u.toml:2: Service.ExecStart: the launcher llama-server makes the command: "
            "use Engine.Command, Args and ExtraArgs"
        ]),
        (START + '[Engine]\nCommand = ["x"]\nArgs = { x = 1 }', [
            'u.toml:4: Engine.Command: the launcher "exec" runs Service.ExecStart as it is',
            'u.toml:5: Engine.Args: the launcher "exec" runs Service.ExecStart as it is',
        ]),
        ('[Engine]\nLauncher = "llama-server"\nExtraArgs = ["--port=1", "-m", "x"]\n[Engine.Args]\nrpc = "x"', [
            "u.toml:5: Engine.Args.rpc: the launcher sets --rpc itself: "
            "the launcher names the other nodes' workers",
            "u.toml:3: Engine.ExtraArgs: the launcher sets --port itself: set BasePort",
            "u.toml:3: Engine.ExtraArgs: the launcher sets -m itself: set Model",
        ]),
    ],
)  # fmt: skip
def test_mistakes_in_one_unit(text: str, complaints: list[str]) -> None:
    assert _complaints(text) == complaints


def _files(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    return directory


def test_all_mistakes_of_all_files_come_at_once_and_in_order(tmp_path: Path) -> None:
    _files(
        tmp_path,
        {
            "a.toml": '[Unit]\nAfter = "b"\n[Service]\nExecStart = "sleep 5"\nTimeoutStopSec = "5x"\n',
            "b.toml": '[Unit]\nAfter = ["a"]\nRequires = ["kv-stroe"]\n' + START,
            "c.toml": "[Unit]\nDescription = \n",
            "kv-store.toml": START,
            "kv-store.toml.d/10-limits.toml": "# limits\n[Service]\nLimitNOFILE = '5:4'\n",
            "e1.toml": START + "[Engine]\n",
            "e2.toml": START + "[Engine]\n",
            "e3.toml": START + '[Engine]\nRestartWith = "local"\n',
        },
    )
    with pytest.raises(ConfigurationError) as caught:
        load_units([tmp_path])
    assert str(caught.value).replace(f"{tmp_path}/", "").splitlines() == [
        "a.toml:2: Unit.After: cannot order the units: a after b after a; take one of these out",
        'a.toml:4: Service.ExecStart: found "sleep 5", expected an argument array such as ["sleep", "5"] '
        "(an argument array, never a shell string)",
        'a.toml:5: Service.TimeoutStopSec: found "5x", expected a duration such as "1min 30s", '
        "\"infinity\" or seconds (unknown unit of time 'x'; known are us, ms, s, min, h, d, w)",
        "b.toml:3: Unit.Requires: there is no unit 'kv-stroe'; did you mean 'kv-store'?",
        "c.toml:2: not TOML: Invalid value",
        "e2.toml:3: Engine: a second engine in one pod, beside 'e1': one engine may belong to a gang, "
        'give the others RestartWith = "local"',
        'kv-store.toml.d/10-limits.toml:3: Service.LimitNOFILE: found "5:4", expected '
        '"soft:hard", a number or "infinity" (the soft limit is above the hard one)',
    ]


def test_units_come_by_name(tmp_path: Path) -> None:
    _files(tmp_path, {"b.toml": START, "a.toml": START})
    assert [unit.name for unit in load_units([tmp_path])] == ["a", "b"]
    assert load_units([]) == ()
