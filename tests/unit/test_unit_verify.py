"""`podvisor verify`: what is wrong on this machine, and what a person or a tool gets to read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.cli import podvisor
from supervisor.unit.errors import Problem
from supervisor.unit.machine_checks import Machine, check
from supervisor.unit.parse import load

PROGRAMS = {"true", "/bin/app", "/work/tool"}


def _why_not(program: str, search: str | None, directory: str | None) -> str | None:
    if search == "/own":
        return None
    place = f"{directory}/{program[2:]}" if program.startswith("./") else program
    return None if place in PROGRAMS else f"no {place}"


def _unreadable(path: str) -> str | None:
    return None if path == "/run/secrets/there" else f"no {path}"


def _find(directory: Path, files: dict[str, str], variables: dict[str, str] | None = None) -> list[str]:
    for name, text in files.items():
        (directory / f"{name}.toml").write_text(text)
    variables = {"PATH": "/bin", **(variables or {})}
    machine = Machine(
        variables=variables,
        why_not=_why_not,
        unreadable=_unreadable,
        missing=lambda path: None if path == "/models/there" else f"no {path}",
        taken_ports={1026: "the supervisor"},
        unknown_account=lambda kind, written: None if written == "root" else f"no {kind} {written}",
        unwritable=lambda path: None if path.startswith("/var/log/") else f"cannot write {path}",
        cpus={0, 1},
        rendezvous_ports=(29500, 29599),
    )
    findings = check(load([directory]), machine)
    return [
        *(_short(problem, directory) for problem in findings.problems),
        *(f"here: {_short(problem, directory)}" for problem in findings.here),
        *(f"warning: {_short(problem, directory)}" for problem in findings.warnings),
    ]


def _short(problem: Problem, directory: Path) -> str:
    return str(problem).replace(f"{directory}/", "")


def test_every_program_is_looked_for(tmp_path: Path) -> None:
    text = """
[Service]
ExecStart = ["a"]
ExecStartPre = [["true"], ["b"]]
ExecStartPost = ["c"]
ExecStop = ["d"]
ExecStopPost = ["/bin/app"]
[Readiness]
Exec = ["e"]
"""
    assert _find(tmp_path, {"u": text}) == [
        "here: u.toml:3: Service.ExecStart: no a",
        "here: u.toml:4: Service.ExecStartPre: no b",
        "here: u.toml:5: Service.ExecStartPost: no c",
        "here: u.toml:6: Service.ExecStop: no d",
        "here: u.toml:9: Readiness.Exec: no e",
    ]


def test_accounts_log_files_and_cpus_are_looked_for(tmp_path: Path) -> None:
    wrong = """
[Service]
ExecStart = ["true"]
User = "nosuch"
Group = "${GROUP}"
SupplementaryGroups = ["root", "video"]
StandardOutput = "file:/nope/x.log"
StandardError = "file:/var/log/x.log"
CPUAffinity = [99]
"""
    right = '[Service]\nExecStart = ["true"]\nUser = "root"\nStandardOutput = "null"\nCPUAffinity = [1, 99]\n'
    assert _find(tmp_path, {"u": wrong, "v": right}, {"GROUP": "staff"}) == [
        "here: u.toml:4: Service.User: no user nosuch",
        "here: u.toml:5: Service.Group: no group staff",
        "here: u.toml:6: Service.SupplementaryGroups: no group video",
        "here: u.toml:7: Service.StandardOutput: cannot write /nope/x.log",
        "here: u.toml:9: Service.CPUAffinity: there is none of these CPUs here",
    ]


def test_a_model_that_is_a_path_is_looked_for(tmp_path: Path) -> None:
    engine = '[Service]\nExecStart = ["true"]\n[Engine]\nRestartWith = "local"\nBasePort = {}\nModel = "{}"\n'
    models = ("/models/nowhere", "/models/there", "Qwen/Qwen3-8B", "${MODEL}", "${LATER}")
    files = {f"e{number}": engine.format(number + 1, model) for number, model in enumerate(models)}
    found = _find(tmp_path, files, {"MODEL": "/models/gone"})
    assert [line for line in found if "Model" in line and "LATER" not in line] == [
        "here: e0.toml:6: Engine.Model: no /models/nowhere",
        "here: e3.toml:6: Engine.Model: no /models/gone",
    ]


def test_programs_are_expanded_and_found_where_the_unit_would(tmp_path: Path) -> None:
    files = {
        "a": '[Service]\nExecStart = ["${DIR}/app"]\n',
        "b": '[Service]\nWorkingDirectory = "/work"\nExecStart = ["./tool"]\n',
        "c": '[Service]\nEnvironment = { PATH = "/own" }\nExecStart = ["x"]\n',
        "d": '[Engine]\nLauncher = "llama-server"\nCommand = ["nowhere"]\n',
        "f": '[Engine]\nLauncher = "llama-server"\nRestartWith = "local"\nBasePort = 2\n',
        "e": '[Service]\nExecStart = ["${NODE_RANK}"]\n[Engine]\nBasePort = 1\nRestartWith = "local"\n',
    }
    assert _find(tmp_path, files, {"DIR": "/bin"}) == [
        "here: d.toml:3: Engine.Command: no nowhere",
        "here: f.toml:2: Engine.Launcher: no llama-server",
    ]


def test_variables_are_judged_by_when_they_are_known(tmp_path: Path) -> None:
    start = 'ExecStart = ["true", "${EPOCH} ${NODE_ADDR_3} ${LOST} ${LOST:-x}"]\n'
    files = {
        "service": "[Service]\n" + start,
        "filed": '[Service]\nEnvironmentFile = "/env"\nExecStart = ["true", "${LOST}"]\n',
        "engine": "[Service]\n" + start + "[Engine]\n",
        "broken": '[Service]\nExecStart = ["true", "${LOST"]\n',
    }
    assert _find(tmp_path, files) == [
        "broken.toml: '${LOST' has no closing brace; a plain dollar before a brace is $${",
        "here: engine.toml:2: Service.ExecStart.1: ${LOST} is not set and has no default",
        "here: filed.toml:2: Service.EnvironmentFile: no /env",
        "here: service.toml:2: Service.ExecStart.1: ${LOST} is not set and has no default",
        "warning: filed.toml:3: Service.ExecStart.1: ${LOST} is not set and has no default",
        "warning: service.toml:2: Service.ExecStart.1: ${EPOCH} may not be known when the unit starts: "
        "give it a default, ${EPOCH:-…}",
        "warning: service.toml:2: Service.ExecStart.1: ${NODE_ADDR_3} may not be known when the unit starts: "
        "give it a default, ${NODE_ADDR_3:-…}",
    ]


def test_a_port_has_one_owner(tmp_path: Path) -> None:
    engine = '[Service]\nExecStart = ["true"]\n[Engine]\nRestartWith = "local"\n'
    files = {
        "a": engine + "BasePort = 1000\nMgmtPort = 1000\n",
        "b": engine + 'BasePort = 1001\nMgmtPort = 1000\nRole = "prefill"\nBootstrapPort = 1002\n',
        "c": engine + "BasePort = 1026\nBootstrapPort = 1002\n",
        "d": engine + "BasePort = 29501\n",
    }
    assert _find(tmp_path, files) == [
        "b.toml:6: Engine.MgmtPort: port 1000 belongs to a (BasePort) already: choose another for one of them",
        "c.toml:5: Engine.BasePort: port 1026 belongs to the supervisor already: choose another for one of them",
        "d.toml:5: Engine.BasePort: port 29501 is one of the supervisor's rendezvous_ports, 29500 to 29599",
    ]


def test_names_that_are_no_unit_are_a_warning(tmp_path: Path) -> None:
    files = {
        "engine": '[Unit]\nAfter = ["kv-stroe"]\nWants = ["other"]\n[Service]\nExecStart = ["true"]\n',
        "kv-store": '[Service]\nExecStart = ["true"]\n',
    }
    assert _find(tmp_path, files) == [
        "warning: engine.toml:2: Unit.After: there is no unit 'kv-stroe'; did you mean 'kv-store'?",
        "warning: engine.toml:3: Unit.Wants: there is no unit 'other'",
    ]


GOOD = {
    "store.toml": '[Unit]\nDescription = "the store"\n[Service]\nExecStart = ["sleep", "1"]\n',
    "app.toml": '[Unit]\nAfter = "store"\nRequires = "store"\n[Service]\nExecStart = ["sleep", "1"]\n',
}


@pytest.fixture
def units(tmp_path: Path) -> Path:
    directory = tmp_path / "units"
    directory.mkdir()
    for name, text in GOOD.items():
        (directory / name).write_text(text)
    return directory


def test_good_units_are_listed_in_start_order(units: Path) -> None:
    result = CliRunner().invoke(podvisor, ["verify", str(units)])
    assert result.output.splitlines() == [
        "2 units, in start order:",
        "  store (exec): the store",
        "  app (exec, after store)",
        "terminationGracePeriodSeconds needed: 65 (app 30s, then store 30s)",
    ]
    assert result.exit_code == 0


def test_bad_units_and_settings_are_told_together(units: Path, tmp_path: Path) -> None:
    (units / "app.toml").write_text('[Service]\nExecStart = ["sleep"]\nRestar = 1\n')
    config = tmp_path / "podvisor.toml"
    config.write_text("[supervisor]\nprot = 1\n")
    result = CliRunner().invoke(podvisor, ["verify", "--units", str(units), "--config", str(config)])
    assert result.output.splitlines() == [
        f"{config}:2: supervisor.prot: unknown key 'prot'; did you mean 'port'?",
        f"{units}/app.toml:3: Service.Restar: unknown key 'Restar'; did you mean 'Restart'?",
        "2 problems found",
    ]
    assert result.exit_code == os.EX_CONFIG


def test_programs_of_this_machine(units: Path) -> None:
    (units / "app.toml").write_text('[Service]\nExecStart = ["no-such-program"]\nEnvironment = { PATH = "/bin" }\n')
    (units / "folder.toml").write_text('[Service]\nExecStart = ["/tmp"]\n')
    (units / "plain.toml").write_text(f'[Service]\nExecStart = ["./app.toml"]\nWorkingDirectory = "{units}"\n')
    (units / "lost.toml").write_text('[Service]\nExecStart = ["/nowhere"]\n')
    (units / "away.toml").write_text('[Service]\nExecStart = ["true"]\nWorkingDirectory = "/no/where"\n')
    (units / "files.toml").write_text('[Service]\nExecStart = ["true"]\nLoadCredential = ["a:/no/a", "b:/tmp"]\n')
    result = CliRunner().invoke(podvisor, ["verify", str(units)])
    assert result.output.replace(f"{units}/", "").splitlines() == [
        "app.toml:2: Service.ExecStart: cannot find 'no-such-program' in PATH (/bin)",
        "away.toml:2: Service.ExecStart: there is no directory '/no/where' to run it in (WorkingDirectory)",
        "files.toml:3: Service.LoadCredential: there is no '/no/a'",
        "files.toml:3: Service.LoadCredential: '/tmp' cannot be read",
        "folder.toml:2: Service.ExecStart: '/tmp' cannot be executed",
        "lost.toml:2: Service.ExecStart: there is no '/nowhere'",
        "plain.toml:2: Service.ExecStart: 'app.toml' cannot be executed",
        "7 problems found",
    ]


def test_tools_get_json(units: Path) -> None:
    result = CliRunner().invoke(podvisor, ["verify", str(units), "--json"], env={"PODVISOR_GRACE_PERIOD_SEC": "30"})
    assert json.loads(result.output) == {
        "problems": [],
        "warnings": [
            {
                "path": "environment",
                "line": None,
                "key": "PODVISOR_GRACE_PERIOD_SEC",
                "message": "the pod is killed after 30 s, an orderly stop may need 65 s (app 30s, then store 30s): "
                "set terminationGracePeriodSeconds to that, or shorten TimeoutStopSec",
            }
        ],
        "units": [
            {
                "name": "store",
                "type": "exec",
                "engine": False,
                "source": str(units / "store.toml"),
                "after": [],
                "requires": [],
            },
            {
                "name": "app",
                "type": "exec",
                "engine": False,
                "source": str(units / "app.toml"),
                "after": ["store"],
                "requires": ["store"],
            },
        ],
        "grace_period_sec": 65,
        "stop_chain": ["app", "store"],
    }


@pytest.mark.parametrize(("written", "warnings"), [("", 0), ("65", 0), ("soon", 1)])
def test_the_pods_grace_period_is_compared(units: Path, written: str, warnings: int) -> None:
    result = CliRunner().invoke(podvisor, ["verify", str(units)], env={"PODVISOR_GRACE_PERIOD_SEC": written})
    assert result.output.count("warning: environment: PODVISOR_GRACE_PERIOD_SEC") == warnings
    assert result.exit_code == 0


def test_a_directory_must_be_named() -> None:
    result = CliRunner().invoke(podvisor, ["verify"])
    assert result.exit_code == 2
    assert "name a directory of unit files" in result.output


RUN = 'ExecStart = ["true"]\n'


def test_files_that_the_start_reads_are_looked_for(tmp_path: Path) -> None:
    text = f"""[Service]
{RUN}EnvironmentFile = ["-/may/be/absent", "/must/be/there", "${{LATER:-/run/secrets/there}}"]
LoadCredential = ["a:/run/secrets/there", "b:/run/secrets/lost", "c:/x/${{NODE_RANK}}"]
"""
    assert _find(tmp_path, {"u": text})[:2] == [
        "here: u.toml:3: Service.EnvironmentFile: no /must/be/there",
        "here: u.toml:4: Service.LoadCredential: no /run/secrets/lost",
    ]


def test_a_credential_that_the_unit_does_not_load_is_wrong_everywhere(tmp_path: Path) -> None:
    start = 'ExecStart = ["true", "${CREDENTIAL:a}${CREDENTIAL:b}"]\n'
    text = f'[Service]\n{start}LoadCredential = ["a:/run/secrets/there"]\n'
    assert _find(tmp_path, {"u": text}) == [
        'u.toml:2: Service.ExecStart.1: ${CREDENTIAL:b}: expected LoadCredential = ["b:/path"] in this unit'
    ]


GIVEN_UP = "and the start is given up after TimeoutStartSec (30s): make that longer"


@pytest.mark.parametrize(
    "keys, found",
    [
        (
            'TimeoutStartSec = 30\n[Readiness]\nTcp = "h:1"\nInitialDelaySec = 30',
            f"u.toml:6: Readiness.InitialDelaySec: cannot pass before 30s, {GIVEN_UP}",
        ),
        (
            'TimeoutStartSec = 30\n[Startup]\nTcp = "h:1"\nPeriodSec = 10\nSuccessThreshold = 4',
            f"u.toml:7: Startup.SuccessThreshold: cannot pass before 30s, {GIVEN_UP}",
        ),
        (
            'TimeoutStartSec = 30\n[Startup]\nLogLine = "up"\nInitialDelaySec = 60',
            f"u.toml:6: Startup.InitialDelaySec: cannot pass before 1min, {GIVEN_UP}",
        ),
        ('TimeoutStartSec = 30\n[Readiness]\nTcp = "h:1"\nInitialDelaySec = 29', None),
        (
            'TimeoutStartSec = 30\n[Readiness]\nTcp = "h:1"\nTimeoutSec = 30',
            "warning: u.toml:6: Readiness.TimeoutSec: one answer that never comes uses up the whole start, "
            "TimeoutStartSec (30s)",
        ),
        (
            '[Liveness]\nTcp = "h:1"\nPeriodSec = 1\nTimeoutSec = 20',
            "warning: u.toml:6: Liveness.TimeoutSec: is far beyond PeriodSec (1s), and the next try waits for the "
            "answer: what hangs is noticed after 1min",
        ),
        ('[Liveness]\nTcp = "h:1"\nPeriodSec = 5\nTimeoutSec = 25', None),
        (
            "StartStallSec = 90",
            "warning: u.toml:3: Service.StartStallSec: has no effect: TimeoutStartSec (1min 30s) gives up the start "
            "before",
        ),
        ("StartCpuOnlySec = 9", "warning: u.toml:3: Service.StartCpuOnlySec: has no effect without StartStallSec"),
        ("StartStallSec = 60\nStartCpuOnlySec = 9", None),
        ('WatchdogSignal = "SIGQUIT"', "warning: u.toml:3: Service.WatchdogSignal: has no effect without WatchdogSec"),
        ("WatchdogSec = 9\nTimeoutAbortSec = 9", None),
        (
            'Type = "oneshot"\nWatchdogSec = 9',
            'warning: u.toml:4: Service.WatchdogSec: has no effect: a unit of Type "oneshot" has no process '
            "while it is active",
        ),
        (
            "StartLimitIntervalSec = 10\nRestartSec = 5",
            "warning: u.toml:3: Service.StartLimitIntervalSec: never reached: 5 starts take 19s 100ms with their "
            "back-offs, longer than StartLimitIntervalSec (10s)",
        ),
        ("StartLimitIntervalSec = 20\nRestartSec = 5", None),
        (
            "LogRateLimitBurst = 9",
            "warning: u.toml:3: Service.LogRateLimitBurst: has no effect without LogRateLimitIntervalSec",
        ),
        ("LogRateLimitBurst = 9\nLogRateLimitIntervalSec = 1", None),
    ],
)
def test_numbers_that_do_not_go_together(keys: str, found: str | None, tmp_path: Path) -> None:
    assert _find(tmp_path, {"u": f"[Service]\n{RUN}{keys}\n"}) == ([] if found is None else [found])


def test_units_for_another_machine_are_not_wrong_here(units: Path) -> None:
    (units / "app.toml").write_text('[Service]\nExecStart = ["no-such-program", "${LOST}"]\n')
    assert CliRunner().invoke(podvisor, ["verify", str(units)]).exit_code == os.EX_CONFIG
    result = CliRunner().invoke(podvisor, ["verify", str(units), "--elsewhere"])
    assert result.exit_code == 0
    assert [line.partition(": Service")[0] for line in result.stderr.splitlines()] == [
        f"warning: {units}/app.toml:2",
        f"warning: {units}/app.toml:2",
    ]
    assert "warning" not in result.stdout


def test_a_shutdown_time_that_is_too_short_names_the_chain(units: Path, tmp_path: Path) -> None:
    config = tmp_path / "podvisor.toml"
    config.write_text("[supervisor]\n\nshutdown_timeout_sec = 40\n")
    result = CliRunner().invoke(podvisor, ["verify", str(units), "--config", str(config)])
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"warning: {config}:3: supervisor.shutdown_timeout_sec: 40 s are too short: an orderly stop may need 65 s "
        "(app 30s, then store 30s); what has not stopped by then is killed"
    ]
    assert "needed: 40 " in result.stdout


COORDINATED = 'controller_url = "http://127.0.0.1:9"\npod_ip = "127.0.0.1"\njob_name = "j"'


@pytest.mark.parametrize("settings, problems", [("", 0), (COORDINATED, 1)])
def test_the_node_managers_port_is_taken_only_with_a_controller(
    settings: str, problems: int, units: Path, tmp_path: Path
) -> None:
    (units / "e.toml").write_text('[Service]\nExecStart = ["sleep", "1"]\n[Engine]\nBasePort = 1026\n')
    config = tmp_path / "podvisor.toml"
    config.write_text(f"[supervisor]\n{settings}\n")
    result = CliRunner().invoke(podvisor, ["verify", str(units), "--config", str(config)])
    assert result.stdout.count("port 1026 belongs to the supervisor (supervisor.port) already") == problems


@pytest.mark.parametrize(
    "files, problem",
    [
        (
            {"a": '[Unit]\nAfter = "b"\nBefore = "b"\n[Service]\n' + RUN},
            "a.toml:2: Unit.After: cannot order the units: a after b after a; take one of these out",
        ),
        (
            {"a": '[Unit]\nBindsTo = "stor"\n[Service]\n' + RUN},
            "a.toml:2: Unit.BindsTo: there is no unit 'stor'; did you mean 'store'?",
        ),
        (
            {"a": '[Unit]\nPartOf = "b"\n[Service]\n' + RUN, "b": '[Unit]\nBindsTo = "a"\n[Service]\n' + RUN},
            "a.toml:1: Unit: a change of one would go round for ever: a follows b follows a; "
            "take one BindsTo, PartOf or OnDependencyRestart out",
        ),
        (
            {"a": '[Unit]\nConflicts = "b"\nWants = "b"\n[Service]\n' + RUN},
            "a.toml:2: Unit.Conflicts: 'b' is needed too: it would be started and stopped at once",
        ),
        (
            {"a": '[Unit]\nConflicts = "e"\n[Service]\n' + RUN, "e": "[Service]\n" + RUN + "[Engine]\n"},
            "a.toml:2: Unit.Conflicts: e may be one rank of a gang, which is never stopped alone: "
            'give it RestartWith = "local", or do without Conflicts',
        ),
        (
            {"a": '[Unit]\nAfter = "b"\n[Unit.OnDependencyRestart]\nstore = "restart"\n[Service]\n' + RUN},
            "a.toml:4: Unit.OnDependencyRestart.store: 'store' is not named by After, Requires, Wants or BindsTo: "
            "its relaunch would not be seen",
        ),
    ],
)
def test_relations_that_cannot_be(files: dict[str, str], problem: str, tmp_path: Path) -> None:
    for name, text in {"b": "[Service]\n" + RUN, "store": "[Service]\n" + RUN, **files}.items():
        (tmp_path / f"{name}.toml").write_text(text)
    result = CliRunner().invoke(podvisor, ["verify", str(tmp_path)])
    assert result.stdout.replace(f"{tmp_path}/", "").splitlines() == [problem, "1 problem found"]


@pytest.mark.parametrize(
    "lines",
    [
        f'WorkingDirectory = "/{"x" * 5000}"',
        f'EnvironmentFile = ["/{"x" * 5000}"]',
        f'LoadCredential = ["x:/{"x" * 5000}"]',
        f'ExecStartPre = ["/{"x" * 5000}"]',
        f'ExecStartPre = ["{"x" * 5000}"]',
    ],
    ids=lambda lines: lines.partition(" ")[0],
)
def test_a_name_that_is_too_long_for_a_file_is_one_that_does_not_exist(lines: str, tmp_path: Path) -> None:
    (tmp_path / "u.toml").write_text(f'[Service]\nExecStart = ["true"]\n{lines}\n')
    result = CliRunner().invoke(podvisor, ["verify", str(tmp_path)])
    assert result.exit_code == os.EX_CONFIG
    assert "u.toml:" in result.output


@pytest.mark.parametrize("size", ['"' + "9" * 5000 + '"', '"²"', "0", "true", "1.5", '"1_0"'])
def test_a_parallel_size_that_is_none_is_told(size: str, tmp_path: Path) -> None:
    (tmp_path / "u.toml").write_text(f'[Engine]\nLauncher = "vllm"\nModel = "m"\n[Engine.Args]\ntp = {size}\n')
    result = CliRunner().invoke(podvisor, ["verify", "--elsewhere", str(tmp_path)])
    assert result.exit_code == os.EX_CONFIG
    assert "u.toml:5: Engine.Args.tp: found " in result.output
    assert "expected a whole number of at least 1" in result.output


def test_a_wrong_file_hides_nothing_that_this_machine_lacks_for_the_others(tmp_path: Path) -> None:
    """And whoever names its unit is told of no other mistake."""
    (tmp_path / "file").touch()
    files = {
        "a": '[Service]\nExecStrat = ["true"]\n',
        "b": '[Unit]\nAfter = ["a"]\nRequires = ["a"]\n[Service]\nExecStart = ["/nowhere/app"]\n',
        "c": f'[Service]\nExecStart = ["true"]\nUser = "nosuchuser"\nStandardOutput = "file:{tmp_path}/file/x.log"\n',
    }
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text)
    result = CliRunner().invoke(podvisor, ["verify", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (78, "")
    assert [line.removeprefix(f"{tmp_path}/") for line in result.stdout.splitlines()] == [
        "a.toml:2: Service.ExecStrat: unknown key 'ExecStrat'; did you mean 'ExecStart'?",
        "b.toml:5: Service.ExecStart: there is no '/nowhere/app'",
        "c.toml:3: Service.User: there is no user 'nosuchuser'",
        f"c.toml:4: Service.StandardOutput: '{tmp_path}/file' is no directory",
        "4 problems found",
    ]
