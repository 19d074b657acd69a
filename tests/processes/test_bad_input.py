"""What a user gets wrong: told at once and by its place, and nothing is started."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from supervisor.shared.listening import CannotListen, listen_tcp
from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import (
    FOREVER,
    Sections,
    free_port,
    left_behind,
    podvisor,
    program,
    service,
    shell,
    socket_of,
    supervisor,
    write_files,
)

STARTED = "started"
"""Stands in the directory once a unit was started."""


def marking(directory: Path) -> Sections:
    return service(*shell(f"touch {directory / STARTED}; exec sleep 600"))


def nothing_was_started(directory: Path) -> bool:
    return not (directory / STARTED).exists() and not left_behind()


async def test_all_problems_of_all_files_come_at_once(tmp_path: Path) -> None:
    arguments = write_files(
        tmp_path,
        {
            "good": marking(tmp_path),
            "key": '[Unit]\nRequires = ["nosuch"]\n[Service]\nExecStrat = ["true"]\n',
            "syntax": "[Service]\nExecStart = [\n",
            "value": '[Service]\nExecStart = ["true"]\nTimeoutStopSec = "soon"\nRestart = "sometimes"\n',
        },
        {"supervisor": {"prot": 1}},
    )
    done = await podvisor(*arguments, PODVISOR_SUPERVISOR__HEARTBEAT_INTERVAL_SECONDS="never")
    assert done.returncode == 78
    units = tmp_path / "units"
    for place in (
        f"{units}/key.toml:4: Service.ExecStrat",
        f"{units}/syntax.toml:",
        f"{units}/value.toml:3: Service.TimeoutStopSec",
        f"{units}/value.toml:4: Service.Restart",
        f"{tmp_path}/podvisor.toml:6: supervisor.prot",
        "environment: PODVISOR_SUPERVISOR__HEARTBEAT_INTERVAL_SECONDS",
    ):
        assert f"podvisor: {place}" in done.stderr
    assert "ExecStart" in done.stderr  # the nearest known name
    assert done.stdout == ""
    assert nothing_was_started(tmp_path)
    assert not socket_of(tmp_path).exists()


async def test_a_token_that_cannot_be_read_is_a_wrong_setting(tmp_path: Path) -> None:
    arguments = write_files(tmp_path, {"web": marking(tmp_path)}, {"auth": {"token_file": "/no/such/token"}})
    done = await podvisor(*arguments)
    assert done.returncode == 78
    assert f"{tmp_path}/podvisor.toml: auth.token_file: cannot read the token file /no/such/token" in done.stderr
    assert nothing_was_started(tmp_path)


@pytest.mark.parametrize(
    "units, said",
    [
        ("missing", "missing: cannot read the directory: No such file or directory"),
        ("empty", "empty: no unit is declared here: expected files NAME.toml"),
        ("file", "file: cannot read the directory: Not a directory"),
    ],
)
async def test_without_unit_files_there_is_nothing_to_run(units: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for command in ("run", "verify"):
        done = await podvisor(command, "--units", str(tmp_path / units))
        assert done.returncode == 78
        assert f"{tmp_path}/{said}" in done.stdout + done.stderr


async def test_an_empty_directory_beside_a_full_one_is_no_mistake(tmp_path: Path) -> None:
    write_files(tmp_path, {"web": service("true")})
    (tmp_path / "overlay").mkdir()
    done = await podvisor("verify", str(tmp_path / "units"), str(tmp_path / "overlay"))
    assert done.returncode == 0


@asynccontextmanager
async def taken_port() -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder.getsockname()[1]


@pytest.mark.parametrize("key", ["probe_port", "port"])
async def test_a_taken_port_is_named_with_its_holder(key: str, tmp_path: Path) -> None:
    coordinated = {"controller_url": ["http://127.0.0.1:9"], "pod_ip": "127.0.0.1", "port": 0}
    engine = {**marking(tmp_path), "Engine": {"Launcher": "exec", "Start": "auto"}}
    async with taken_port() as port:
        settings = {"supervisor": {**coordinated, key: port}}
        arguments = write_files(tmp_path, {"engine": engine, "web": marking(tmp_path)}, settings)
        done = await podvisor(*arguments)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use (pid {os.getpid()}, " in done.stderr
    assert f"end who listens there, or set supervisor.{key}" in done.stderr
    assert nothing_was_started(tmp_path)
    assert not socket_of(tmp_path).exists()


LISTENS = "import socket, sys; held = socket.create_server((sys.argv[1], int(sys.argv[2]))); print('up'); input()"


async def test_the_holder_is_who_listens_on_that_very_address() -> None:
    async with taken_port() as port, program(sys.executable, "-u", "-c", LISTENS, "127.0.0.2", str(port)) as other:
        await other.stdout.saw("up")
        for host, pid in (("127.0.0.1", os.getpid()), ("127.0.0.2", other.pid)):
            with pytest.raises(CannotListen, match=rf"\(pid {pid}, "):
                listen_tcp(host, port)


async def test_the_socket_of_a_living_supervisor_is_named_with_its_pid(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with supervisor(tmp_path, {"web": service(*FOREVER)}) as running:
        pid = await running.started("web")
        arguments = write_files(other, {"web": marking(other)})
        done = await podvisor(*arguments, "--socket", str(running.socket))
        assert done.returncode == 1
        assert f"{running.socket}: another supervisor answers there (pid {running.pid})" in done.stderr
        assert not (other / STARTED).exists()
        assert (await running.units())["web"].pid == pid


async def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(socket_of(tmp_path)))
    async with supervisor(tmp_path, {"web": service(*FOREVER)}) as running:
        assert (await running.units())["web"].state == "active"
        assert socket_of(tmp_path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "place, said",
    [
        ("file", "cannot listen on {}: something that is no socket stands there"),
        ("directory", "cannot listen on {}: something that is no socket stands there"),
        ("file/below", "cannot make the directory {.parent}: File exists"),
        ("x" * 120, "cannot listen on {}: AF_UNIX path too long"),
    ],
)
async def test_what_is_no_socket_is_left_alone(place: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "directory").mkdir()
    arguments = write_files(tmp_path, {"web": marking(tmp_path)})
    done = await podvisor(*arguments, "--socket", str(tmp_path / place))
    assert done.returncode == 1
    assert f"podvisor: {said.format(tmp_path / place)}" in done.stderr
    assert (tmp_path / "file").read_text() == "precious"
    assert nothing_was_started(tmp_path)


async def test_a_unit_that_cannot_be_executed_fails_with_its_reason_and_the_others_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.touch(mode=0o644)
    units = {
        "missing": service("/no/such/program", RestartSec="10ms", StartLimitBurst=2),
        "unknown": service("no-such-program", Restart="no"),
        "plain": service(str(program), Restart="no"),
        "stranger": service(*FOREVER, User="nosuch", Restart="no"),
        "greedy": service(*FOREVER, LimitNOFILE="1:99999999999", Restart="no"),
        "homeless": service(*FOREVER, WorkingDirectory="/no/such/place", Restart="no"),
        "above": {**service(*FOREVER), "Unit": {"Requires": ["plain"], "After": ["plain"]}},
        "web": service(*FOREVER),
    }
    expected = {
        "missing": ("start-limit-hit", 127, "'/no/such/program': no such file"),
        "unknown": ("failed", 127, "'no-such-program': not found in PATH"),
        "plain": ("failed", 126, "permission denied (its mode is 0644)"),
        "stranger": ("failed", 126, "'nosuch': there is no such user"),
        "greedy": ("failed", 126, "the hard limit here is"),
        "homeless": ("failed", 126, "'/no/such/place': no such directory"),
    }
    async with supervisor(tmp_path, units) as running:
        for name, (state, _, _) in expected.items():
            await running.moved(name, "cleaning", state)
        await running.moved("above", "waiting", "failed")
        await running.started("web")
        views = await running.units()
    for name, (state, code, why) in expected.items():
        view = views[name]
        assert (view.state, view.sub_state, view.pid) == ("failed", state, None)
        assert why in view.reason
        assert view.last_exit is not None
        assert (view.last_exit.code, view.last_exit.log_tail) == (code, ())
    assert "dependency plain is failed" in views["above"].reason
    assert views["missing"].restarts == 1
    assert views["web"].state == "active"


async def test_a_malformed_request_has_no_effect(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*FOREVER)}) as running:
        pid = await running.started("web")
        async with running.api() as client:
            answers = {
                "not a number": await client.get("/v1/units/web/logs?lines=many"),
                "no such unit": await client.post("/v1/units/wep/stop"),
                "no such verb": await client.post("/v1/units/web/explode"),
                "no such method": await client.get("/v1/units/web/stop"),
                "no engine": await client.post("/v1/engine/relaunch"),
            }
        assert {name: answer.status_code for name, answer in answers.items()} == {
            "not a number": 400,
            "no such unit": 404,
            "no such verb": 404,
            "no such method": 405,
            "no engine": 409,
        }
        assert "there is no unit 'wep' here; there are: web" in answers["no such unit"].json()["message"]
        assert (await running.units())["web"].pid == pid


async def test_a_command_of_no_controller_of_ours_has_no_effect(tmp_path: Path) -> None:
    """Malformed, for nobody, out of turn: 400 or 409 with the reason; no token: 401."""
    token = tmp_path / "token"
    token.write_text("secret")
    port = free_port()
    coordinated = {"controller_url": ["http://127.0.0.1:9"], "pod_ip": "127.0.0.1", "port": port, "job_name": "job"}
    units = {"web": service(*FOREVER), "engine": {**service(*FOREVER), "Engine": {"Launcher": "exec"}}}
    async with supervisor(tmp_path, units, {"supervisor": coordinated, "auth": {"token_file": str(token)}}) as running:
        pid = await running.started("web")
        await running.online()
        url, shown = f"http://127.0.0.1:{port}/node-manager", {"authorization": "Bearer secret"}
        async with httpx.AsyncClient(timeout=TIMEOUT_SEC) as client:
            answers = [
                await client.post(f"{url}/engine-restart", content=body, headers=headers)
                for body, headers in (
                    (b'{"action": "restart"}', {}),
                    (b"{", shown),
                    (b"{}", shown),
                    (b'{"action": "explode"}', shown),
                    (b'{"action": "restart"}', shown),
                    (b'{"action": "prepare", "epoch": 1, "boot_id": "another"}', shown),
                )
            ]
        assert [(answer.status_code, answer.json()["error"]) for answer in answers] == [
            (401, "unauthorized"),
            (400, "malformed"),
            (400, "malformed"),
            (400, "malformed"),
            (400, "not_started"),
            (409, "wrong_boot"),
        ]
        assert answers[2].json()["message"] == "missing fields: action"
        views = await running.units()
    assert (views["web"].pid, views["engine"].state, views["engine"].last_exit) == (pid, "inactive", None)


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (["run", "--unit", "x"], 2, "Did you mean '--units'?"),
        (["run", "/usr/bin"], 2, "/usr/bin is a directory; unit files are named by --units DIR"),
        (["run", "--units", "x", "--", "true"], 2, "--units and a command exclude each other"),
        (["status", "--socket", "/no/such.sock"], 69, "cannot reach the supervisor at /no/such.sock"),
        (["status", "a/b"], 4, "'a/b' is no name of a unit"),
        (["logs", "-n", "-1", "web"], 2, "-1"),
    ],
)
async def test_a_wrong_command_line_says_what_is_wrong(arguments: list[str], code: int, said: str) -> None:
    done = await podvisor(*arguments)
    assert done.returncode == code
    assert said in done.stderr
