"""The router of docs/routing.md finds a controller that leads, shows it its token, and says so when it is refused."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
import trio

from docs.examples import router
from supervisor import wire
from tests.processes.test_controller_process import COMMAND, controller
from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import free_port, toml
from tests.unit.controller_gang import registration


class Listening(router.Routes):
    """Says when it was told how things are."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = trio.Event()
        self.heard_more = trio.Event()

    def begin(self, listing: router.Told) -> None:
        super().begin(listing)
        self.begun.set()

    def hear(self, event: router.Told) -> None:
        super().hear(event)
        self.heard_more.set()


async def test_it_follows_the_controller_that_it_finds_with_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "AGAIN_SEC", 0.05)
    (tmp_path / "tokens").write_text("read looker\nnode supervisor\n")
    (tmp_path / "podvisor.toml").write_text(toml({"auth": {"token_file": str(tmp_path / "tokens")}}))
    routes = Listening()
    async with (
        controller(command=(*COMMAND, "--config", str(tmp_path / "podvisor.toml"))) as running,
        httpx.AsyncClient(headers={"Authorization": "Bearer supervisor"}) as client,
        trio.open_nursery() as nursery,
    ):
        nobody = f"http://127.0.0.1:{free_port()}"
        nursery.start_soon(router.follow, [nobody, running.url], routes, "looker")
        with trio.fail_after(TIMEOUT_SEC):
            await routes.begun.wait()
            listed = routes.heard
            message = wire.encode(registration(0, nnodes=2, features=wire.FEATURES))
            (await client.post(f"{running.url}/controller/register", content=message)).raise_for_status()
            await routes.heard_more.wait()
        assert int(routes.heard) > int(listed.rpartition("-")[2])
        assert list(routes.each()) == [], "it has registered and does not serve yet"
        nursery.cancel_scope.cancel()


async def test_without_a_token_that_counts_it_says_so_and_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(router, "AGAIN_SEC", 0.05)
    (tmp_path / "tokens").write_text("read looker\n")
    (tmp_path / "podvisor.toml").write_text(toml({"auth": {"token_file": str(tmp_path / "tokens")}}))
    async with controller(command=(*COMMAND, "--config", str(tmp_path / "podvisor.toml"))) as running:
        said = ""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(router.follow, [running.url], router.Routes(), None)
            with trio.fail_after(TIMEOUT_SEC):
                while said.count("401") < 2:
                    await trio.sleep(0.02)
                    said += capsys.readouterr().err
            nursery.cancel_scope.cancel()
