"""`podvisor verify`: what is wrong on this machine, and what a person or a tool gets to read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.cli.verify import command
from supervisor.unit.errors import Problem
from supervisor.unit.machine_checks import Machine, check
from supervisor.unit.parse import load

PROGRAMS = {"true", "/bin/app", "/work/tool"}


def _why_not(program: str, search: str | None, directory: str | None) -> str | None:
    if search == "/own":
        return None
    place = f"{directory}/{program[2:]}" if program.startswith("./") else program
    return None if place in PROGRAMS else f"no {place}"


def _find(directory: Path, files: dict[str, str], variables: dict[str, str] | None = None) -> list[str]:
    for name, text in files.items():
        (directory / f"{name}.toml").write_text(text)
    machine = Machine({"PATH": "/bin", **(variables or {})}, _why_not, {1026: "the supervisor"})
    findings = check(load([directory]), machine)
    return [
        *(_short(problem, directory) for problem in findings.problems),
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
        "u.toml:3: Service.ExecStart: no a",
        "u.toml:4: Service.ExecStartPre: no b",
        "u.toml:5: Service.ExecStartPost: no c",
        "u.toml:6: Service.ExecStop: no d",
        "u.toml:9: Readiness.Exec: no e",
    ]


def test_programs_are_expanded_and_found_where_the_unit_would(tmp_path: Path) -> None:
    files = {
        "a": '[Service]\nExecStart = ["${DIR}/app"]\n',
        "b": '[Service]\nWorkingDirectory = "/work"\nExecStart = ["./tool"]\n',
        "c": '[Service]\nEnvironment = { PATH = "/own" }\nExecStart = ["x"]\n',
        "d": '[Engine]\nLauncher = "llama-server"\nCommand = ["nowhere"]\n',
        "e": '[Service]\nExecStart = ["${NODE_RANK}"]\n[Engine]\nBasePort = 1\nRestartWith = "local"\n',
    }
    assert _find(tmp_path, files, {"DIR": "/bin"}) == ["d.toml:3: Engine.Command: no nowhere"]


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
        "engine.toml:2: Service.ExecStart.1: ${LOST} is not set and has no default",
        "service.toml:2: Service.ExecStart.1: ${LOST} is not set and has no default",
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
    }
    assert _find(tmp_path, files) == [
        "b.toml:6: Engine.MgmtPort: port 1000 belongs to a (BasePort) already",
        "c.toml:5: Engine.BasePort: port 1026 belongs to the supervisor already",
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
    result = CliRunner().invoke(command, [str(units)])
    assert result.output.splitlines() == [
        "2 units, in start order:",
        "  store (exec): the store",
        "  app (exec, after store)",
        "terminationGracePeriodSeconds needed: 65",
    ]
    assert result.exit_code == 0


def test_bad_units_and_settings_are_told_together(units: Path, tmp_path: Path) -> None:
    (units / "app.toml").write_text('[Service]\nExecStart = ["sleep"]\nRestar = 1\n')
    config = tmp_path / "podvisor.toml"
    config.write_text("[supervisor]\nprot = 1\n")
    result = CliRunner().invoke(command, ["--units", str(units), "--config", str(config)])
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
    result = CliRunner().invoke(command, [str(units)])
    assert result.output.replace(f"{units}/", "").splitlines() == [
        "app.toml:2: Service.ExecStart: cannot find 'no-such-program' in PATH (/bin)",
        "folder.toml:2: Service.ExecStart: '/tmp' cannot be executed",
        "lost.toml:2: Service.ExecStart: there is no '/nowhere'",
        "plain.toml:2: Service.ExecStart: 'app.toml' cannot be executed",
        "4 problems found",
    ]


def test_tools_get_json(units: Path) -> None:
    result = CliRunner().invoke(command, [str(units), "--json"], env={"PODVISOR_GRACE_PERIOD_SEC": "30"})
    assert json.loads(result.output) == {
        "problems": [],
        "warnings": [
            {
                "path": "environment",
                "line": None,
                "key": "PODVISOR_GRACE_PERIOD_SEC",
                "message": "the pod is killed after 30 s, an orderly stop may need 1min 5s",
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
    }


@pytest.mark.parametrize(("written", "warnings"), [("", 0), ("65", 0), ("soon", 1)])
def test_the_pods_grace_period_is_compared(units: Path, written: str, warnings: int) -> None:
    result = CliRunner().invoke(command, [str(units)], env={"PODVISOR_GRACE_PERIOD_SEC": written})
    assert result.output.count("warning: environment: PODVISOR_GRACE_PERIOD_SEC") == warnings
    assert result.exit_code == 0


def test_a_directory_must_be_named() -> None:
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 2
    assert "name a directory of unit files" in result.output
