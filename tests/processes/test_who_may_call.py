"""Who may speak to a supervisor over TCP, and what a refused request does: nothing."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import (
    FOREVER,
    RunningSupervisor,
    Sections,
    podvisor,
    service,
    supervisor,
    write_files,
)

TOKENS = "# who may what\nread looker\noperate operator\nnode supervisor\n"
UNITS: dict[str, Sections | str] = {"web": service(*FOREVER)}


def guarded(directory: Path) -> Sections:
    (directory / "tokens").write_text(TOKENS)
    return {
        "supervisor": {"operations_listen": "127.0.0.1:0"},
        "auth": {"token_file": str(directory / "tokens")},
    }


async def served_at(running: RunningSupervisor) -> str:
    return (await running.stderr.saw(r"the operations API is served at (http\S+)"))[1]


async def test_roles_decide_what_a_token_may_do_and_a_refusal_has_no_effect(tmp_path: Path) -> None:
    async with supervisor(tmp_path, UNITS, guarded(tmp_path)) as running:
        pid = await running.started("web")
        url = await served_at(running)

        async def asked(method: str, path: str, token: str | None) -> httpx.Response:
            headers = {"authorization": f"Bearer {token}"} if token is not None else {}
            async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SEC) as client:
                return await client.request(method, path, headers=headers)

        looking = [(await asked("GET", "/v1/units", token)).status_code for token in (None, "guess", "looker")]
        assert looking == [401, 403, 200]
        for path in ("/v1/units/web/stop", "/v1/units/web/kill", "/v1/units/web/restart", "/v1/engine/relaunch"):
            answers = [await asked("POST", path, token) for token in (None, "guess", "looker")]
            assert [answer.status_code for answer in answers] == [401, 403, 403]
            assert answers[0].headers["www-authenticate"] == "Bearer"
            assert {answer.json()["error"] for answer in answers} == {"unauthorized"}
            needed = f"POST {path} needs the role operate; this token grants read"
            assert answers[2].json()["message"] == needed
        assert (await running.units())["web"].pid == pid, "the socket of this pod needs no token"
        for token, state in (("operator", "stop"), ("supervisor", "start")):
            assert (await asked("POST", f"/v1/units/web/{state}", token)).status_code == 200
        assert (await running.units())["web"].pid != pid
        assert [(await asked("GET", path, "looker")).status_code for path in ("/metrics", "/v1/exits")] == [200, 200]


async def test_whoever_lets_everybody_in_is_told_at_every_start(tmp_path: Path) -> None:
    settings: Sections = {"supervisor": {"operations_listen": "127.0.0.1:0"}, "auth": {"allow_anonymous": True}}
    for _ in range(2):
        async with supervisor(tmp_path, UNITS, settings) as running:
            await running.stderr.saw("everybody who reaches this pod's ports may command it: auth.allow_anonymous")
            async with httpx.AsyncClient(timeout=TIMEOUT_SEC) as client:
                assert (await client.get(f"{await served_at(running)}/v1/units")).status_code == 200


@pytest.mark.parametrize(
    "settings, said",
    [
        (
            {"operations_listen": "127.0.0.1:1028"},
            "supervisor.operations_listen: who reaches it may stop engines: set auth.token_file",
        ),
        ({"operations_listen": "1028"}, 'expected an address and a port such as "127.0.0.1:1028"'),
        ({"operations_listen": "somewhere:1028"}, 'expected an address and a port such as "127.0.0.1:1028"'),
        ({"operations_listen": "127.0.0.1:1026"}, "its port must differ from port, which is 1026 too"),
    ],
)
async def test_settings_that_would_let_everybody_in_are_refused(
    tmp_path: Path, settings: dict[str, object], said: str
) -> None:
    done = await podvisor(*write_files(tmp_path, UNITS, {"supervisor": settings}))
    assert done.returncode == 78
    assert said in done.stderr


async def test_a_token_file_that_grants_something_unknown_is_a_configuration_error(tmp_path: Path) -> None:
    settings = guarded(tmp_path)
    (tmp_path / "tokens").write_text("admin s3cret\n")
    done = await podvisor(*write_files(tmp_path, UNITS, settings))
    assert done.returncode == 78
    assert f"auth.token_file: {tmp_path}/tokens:1: expected TOKEN, ROLE TOKEN or ROLE@NAMESPACE TOKEN" in done.stderr
    assert "s3cret" not in done.stderr
