"""What design 3 says of every command, asked of every command: help, --json, --socket, exit codes without anybody."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import httpx
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner
from msgspec.structs import replace

from supervisor import wire
from supervisor.cli import podvisor
from supervisor.cli.motion import in_motion
from supervisor.cli.status import _detail, _last_words
from tests.support.command_table import NOT_ANSWERING, arguments, commands, of_controller, of_supervisor, option

# httpcore leaves a Unix socket that it could not connect to the garbage collector. A command ends right after.
pytestmark = pytest.mark.filterwarnings("ignore:.*socket.socket:pytest.PytestUnraisableExceptionWarning")

NOWHERE = "/nowhere/podvisor.sock"


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Here, not in the middle of another test."""
    yield
    gc.collect()


@pytest.mark.parametrize("name", commands())
def test_help_has_an_example(name: str) -> None:
    result = CliRunner().invoke(podvisor, [*name.split(), "--help"])
    assert result.exit_code == 0
    last = name.split()[-1]  # a verb of a group may be known by itself as well
    example = result.output.partition("Example:")[2]
    assert f"podvisor {name}" in example or f"podvisor {last}" in example


@pytest.mark.parametrize("name", commands().keys() - NOT_ANSWERING)
def test_every_answer_can_be_json(name: str) -> None:
    assert option(commands()[name], "--json")


@pytest.mark.parametrize("name", of_supervisor())
def test_the_socket_can_be_said_in_the_environment(name: str) -> None:
    found = option(of_supervisor()[name], "--socket")
    assert found is not None
    assert found.envvar == "PODVISOR_SOCKET"


@pytest.mark.parametrize("name", of_controller())
def test_the_controller_can_be_said_in_the_environment(name: str) -> None:
    found = option(of_controller()[name], "--controller")
    assert found is not None
    assert "PODVISOR_CONTROLLER" in (found.envvar or ())


@pytest.mark.parametrize("name", of_supervisor())
def test_without_a_supervisor_it_is_69(name: str) -> None:
    command = of_supervisor()[name]
    for more in ([], ["--json"]):
        result = CliRunner().invoke(podvisor, [name, *arguments(command, "web"), *more, "--socket", NOWHERE])
        assert (result.exit_code, result.stdout) == (69, "")
        assert f"cannot reach the supervisor at {NOWHERE}" in result.stderr


@pytest.mark.parametrize("name", of_controller())
def test_without_a_controller_it_is_69(name: str) -> None:
    command = of_controller()[name]
    whom = ["--all"] if option(command, "--all") else arguments(command, "1")
    result = CliRunner().invoke(podvisor, [*name.split(), *whom, "--controller", "http://127.0.0.1:9"])
    assert (result.exit_code, result.stdout) == (69, "")


def test_verify_tells_tools_where_and_what(tmp_path: Path) -> None:
    (tmp_path / "web.toml").write_text('[Service]\nExecStrat = ["true"]\n')
    result = CliRunner().invoke(podvisor, ["verify", str(tmp_path), "--json"])
    assert result.exit_code == 78
    assert json.loads(result.output)["problems"][0] == {
        "path": str(tmp_path / "web.toml"),
        "line": 2,
        "key": "Service.ExecStrat",
        "message": "unknown key 'ExecStrat'; did you mean 'ExecStart'?",
    }


def test_a_controller_without_a_scheme_is_a_usage_error() -> None:
    result = CliRunner().invoke(podvisor, ["instances", "--controller", "10.0.0.10:1026"])
    assert result.exit_code == 2
    assert "expected a URL such as http://10.0.0.10:1026" in result.stderr


@pytest.mark.parametrize("shows_one", [True, False])
def test_who_shows_no_token_is_told_how(shows_one: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    body = wire.ErrorBody(error=wire.ErrorCode.UNAUTHORIZED, message="a token is needed")
    denied = httpx.Response(401, content=wire.encode(body))
    denied.request = httpx.Request("GET", "http://controller:1026/v1/instances")
    monkeypatch.setattr(httpx.Client, "request", lambda *_, **__: denied)
    (tmp_path / "token").write_text("x\n")
    options = ["--token-file", str(tmp_path / "token")] if shows_one else []
    result = CliRunner().invoke(podvisor, ["instances", *options])
    assert result.exit_code == 1
    assert ("--token-file FILE or PODVISOR_TOKEN_FILE" in result.stderr) is not shows_one


@pytest.mark.parametrize("group", [[], ["instance"]])
def test_no_summary_in_the_help_is_cut_on_a_terminal_of_80_columns(group: list[str]) -> None:
    result = CliRunner().invoke(podvisor, [*group, "--help"], terminal_width=80, max_content_width=80)
    _, _, summaries = result.output.partition("Commands:")
    assert len(summaries.splitlines()) > 5
    assert [line for line in summaries.splitlines() if line.endswith("...")] == []


def test_the_nearest_command_is_suggested() -> None:
    assert "did you mean 'status'?" in CliRunner().invoke(podvisor, ["staus"]).stderr
    nothing_like_it = CliRunner().invoke(podvisor, ["xyz"])
    assert nothing_like_it.exit_code == 2
    assert "did you mean" not in nothing_like_it.stderr


@pytest.mark.parametrize(
    "written, said",
    [
        (["run", "--"], "there is no COMMAND behind --"),
        (["run", "sh", "-c", "exit 4"], "podvisor run -- COMMAND..."),
    ],
)
def test_a_command_that_is_not_said_rightly_is_a_usage_error(written: list[str], said: str) -> None:
    result = CliRunner().invoke(podvisor, written)
    assert result.exit_code == 2
    assert said in result.stderr


# --- completion ------------------------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    *before, last = words
    return [item.value for item in BashComplete(podvisor, {}, "podvisor", "X").get_completions([*before], last)]


def test_commands_and_options_are_completed() -> None:
    assert completed("re") == ["restart", "reset-failed", "relaunch", "reload", "relaunches", "release"]
    assert completed("reload", "--d") == ["--dry-run"]
    assert completed("graph", "--format", "") == ["ascii", "dot", "mermaid"]
    assert completed("completion", "") == ["bash", "zsh", "fish"]


def test_without_a_supervisor_there_are_no_names_and_no_words(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PODVISOR_SOCKET", NOWHERE)
    assert completed("status", "") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shell, said", [("bash", "complete -o nosort"), ("zsh", "#compdef"), ("fish", "complete --")])
def test_each_shell_has_its_script(shell: str, said: str) -> None:
    result = CliRunner().invoke(podvisor, ["completion", shell])
    assert result.exit_code == 0
    assert said in result.output
    assert "_PODVISOR_COMPLETE" in result.output


def test_bash_completes(tmp_path: Path) -> None:
    """In a bash, with the function that it would call when somebody presses TAB."""
    (tmp_path / "podvisor").write_text(f'#!/bin/sh\nexec {sys.executable} -m supervisor "$@"\n')
    (tmp_path / "podvisor").chmod(0o755)
    script = """
        source <(podvisor completion bash)
        COMP_WORDS=(podvisor rel); COMP_CWORD=1
        _podvisor_completion podvisor rel podvisor
        printf '%s\\n' "${COMPREPLY[@]}"
        complete -p podvisor
    """
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "relaunch",
        "reload",
        "relaunches",
        "release",
        "complete -o nosort -F _podvisor_completion podvisor",
    ]


# --- what is being waited for ----------------------------------------------------------------------------------

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def moving(name: str, state: str, sub_state: str) -> wire.UnitView:
    since = "2025-12-31T23:59:55.000Z"
    return wire.UnitView(name=name, type="exec", state=state, sub_state=sub_state, pid=None, since=since, restarts=0)


def units(*views: wire.UnitView) -> wire.UnitsView:
    about = wire.SupervisorView(pid=1, version="", boot_id="", uptime_sec=0.0)
    return wire.UnitsView(units=views, supervisor=about)


GRAPH = wire.GraphView(
    units=(),
    edges=(
        wire.EdgeView(source="engine", target="store", kind="after"),
        wire.EdgeView(source="engine", target="exporter", kind="after"),
        wire.EdgeView(source="router", target="engine", kind="requires"),
    ),
)
LOADING = moving("store", "activating", "loading")
WAITING = moving("engine", "activating", "waiting")


@pytest.mark.parametrize(
    "views, name, expected",
    [
        ([moving("store", "active", "ready")], None, ""),
        ([LOADING], "store", "store is activating (loading) for 5.0s"),
        ([LOADING, WAITING, moving("exporter", "active", "ready")], "engine",
         "store is activating (loading) for 5.0s; engine waits for store"),
        ([moving("router", "deactivating", "stop-term"), LOADING], "store",
         "router is deactivating (stop-term) for 5.0s; store is activating (loading) for 5.0s"),
        ([moving("other", "deactivating", "stop-term")], "store", ""),
        ([moving("other", "deactivating", "stop-term")], None, "other is deactivating (stop-term) for 5.0s"),
        ([moving(str(number), "activating", "waiting") for number in range(6)], None,
         "; ".join(f"{number} waits for its dependencies" for number in range(4)) + "; and 2 more"),
    ],
)  # fmt: skip
def test_it_is_told_who_is_waited_for(views: list[wire.UnitView], name: str | None, expected: str) -> None:
    assert in_motion(units(*views), GRAPH, name, NOW) == expected


def test_status_says_what_a_reload_has_held_back() -> None:
    held = replace(moving("engine", "active", "ready"), changed=("Service.ExecStart",), reason="started as pid 7")
    assert _last_words(held) == "changed: Service.ExecStart; started as pid 7"
    assert " changed: Service.ExecStart: the files differ from what runs" in _detail(held).splitlines()


KILLED = wire.ExitView(
    pid=7,
    code=None,
    signal="SIGKILL",
    asked=False,
    cause="killed by SIGKILL",
    uptime_sec=1.0,
    at="2026-01-01T00:00:00Z",
)


@pytest.mark.parametrize(
    "sub_state, reason, last, expected",
    [
        ("ready", "ready", None, "ready"),
        ("ready", "ready", KILLED, "killed by SIGKILL"),
        ("unhealthy", "Liveness failed", KILLED, "Liveness failed"),
        ("failed", "", KILLED, "killed by SIGKILL"),
    ],
)
def test_status_tells_a_units_last_exit_unless_something_else_is_the_matter(
    sub_state: str, reason: str, last: wire.ExitView | None, expected: str
) -> None:
    unit = replace(moving("engine", "active", sub_state), reason=reason, last_exit=last)
    assert _last_words(unit) == expected


def test_the_table_sees_the_commands() -> None:
    assert {"status", "reload", "stop"} <= of_supervisor().keys()
    assert {"instances", "relaunches"} <= of_controller().keys()
    assert isinstance(commands()["run"], click.Command)
