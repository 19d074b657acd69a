"""`podvisor run` for which no controller answers: what it does by itself, and what an operator can do."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.support.running_supervisor import FOREVER, Sections, free_port, service, shell, supervisor


def settings(**keys: object) -> Sections:
    nobody = {
        "controller_url": f"http://127.0.0.1:{free_port()}",
        "pod_ip": "127.0.0.1",
        "port": 0,
        "job_name": "alone",
    }
    return {"supervisor": {**nobody, **keys}}


def units() -> dict[str, Sections]:
    engine = service(*shell("echo ready; exec sleep 600"))
    return {
        "engine": {
            **engine,
            "Engine": {"Launcher": "exec", "BasePort": free_port()},
            "Readiness": {"LogLine": "ready"},
        },
        "store": service(*FOREVER),
    }


async def asked(url: str, path: str) -> tuple[int, str]:
    async with httpx.AsyncClient() as client:
        answer = await client.get(url + path)
    return answer.status_code, answer.text.strip()


async def test_it_waits_as_long_as_it_is_told_and_then_serves_alone(tmp_path: Path) -> None:
    async with supervisor(tmp_path, units(), settings(start_without_controller_after_sec=2)) as running:
        url = await running.online()
        await running.stderr.saw("event=waiting-for-controller")
        assert (await asked(url, "/livez"))[0] == 200
        await running.stderr.saw("started without a controller: there was none for 2 s, and this instance is one pod")
        await running.moved("engine", "loading", "ready")
        assert await asked(url, "/readyz") == (200, "ok")
        assert await asked(url, "/startupz") == (200, "ok")


async def test_an_operator_starts_it_where_the_settings_place_it(tmp_path: Path) -> None:
    async with supervisor(tmp_path, units(), settings(start_without_controller_after_sec=0)) as running:
        url = await running.online()
        assert await asked(url, "/startupz") == (503, "not active: engine; not registered with the controller")
        needless = await running.command("start", "store", "--standalone")
        assert (needless.returncode, needless.stderr.strip()) == (
            1,
            "Error: store needs no controller: start it without --standalone",
        )
        done = await running.command("start", "engine", "--standalone")
        assert done.returncode == 0, done.stderr
        await running.moved("engine", "loading", "ready")
        assert await asked(url, "/readyz") == (200, "ok")
        again = await running.command("start", "engine", "--standalone")
        assert again.returncode == 1
        assert "engine was started already" in again.stderr
