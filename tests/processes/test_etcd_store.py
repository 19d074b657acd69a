"""The election and the store against a real etcd: killed, stopped and compacted meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
import trio

from controller.election import Leadership
from controller.model.relaunch.dispatch import record
from controller.store.base import CannotOpen, CannotWrite, Deposed
from controller.store.etcd import Keys
from controller.store.etcd_client import Access, EtcdClient, EtcdRefused
from controller.store.etcd_election import EtcdElection
from tests.support.real_etcd import RealEtcd, needs_etcd, real_etcd
from tests.unit.controller_gang import Drive, serving

pytestmark = needs_etcd

LEASE_SEC = 2
PATIENCE_SEC = 120.0


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[RealEtcd]:
    async with real_etcd(tmp_path) as running:
        yield running


def election(etcd: RealEtcd, name: str = "a", prefix: str = "/podvisor/") -> EtcdElection:
    return EtcdElection(Access((etcd.url,)), Keys(prefix), f"http://{name}:1026", LEASE_SEC)


@asynccontextmanager
async def leading(etcd: RealEtcd, name: str = "a", prefix: str = "/podvisor/") -> AsyncIterator[Leadership]:
    with trio.fail_after(PATIENCE_SEC):
        async with election(etcd, name, prefix).campaign() as leadership:
            yield leadership


async def test_what_was_acknowledged_survives_a_kill_of_etcd_and_its_compaction(etcd: RealEtcd) -> None:
    run = record(Drive.open(serving()).run, 5.0)
    async with leading(etcd) as leadership:
        await leadership.store.load()
        await leadership.store.save_instance(serving())
        await leadership.store.save_run(run)
        await etcd.compact()
        loaded = await leadership.store.load()
        assert loaded.runs[run.instance].run_id == run.run_id
        await etcd.kill()
        await etcd.start()
        await leadership.store.save_instance(serving(3))
    await etcd.compact()
    async with leading(etcd, "b") as leadership:
        loaded = await leadership.store.load()
    assert loaded.term > 1
    assert len(loaded.instances[run.instance].members) == 3
    assert loaded.runs[run.instance].run_id == run.run_id


async def test_a_lease_that_is_over_refuses_every_write_of_who_had_it(etcd: RealEtcd) -> None:
    async with leading(etcd) as first:
        # Its clock stood still, as that of a virtual machine may.
        first.scope.deadline = float("inf")
        await _revoke_all(etcd)
        async with leading(etcd, "b") as second:
            with pytest.raises(Deposed):
                await first.store.save_instance(serving())
            assert first.is_lost
            await second.store.save_instance(serving(3))
            (kept,) = (await second.store.load()).instances.values()
            assert len(kept.members) == 3


async def test_fleets_that_share_an_etcd_do_not_see_each_other(etcd: RealEtcd) -> None:
    async with leading(etcd, "a", "/one/") as one, leading(etcd, "b", "/two/") as two:
        await one.store.save_instance(serving())
        assert dict((await two.store.load()).instances) == {}


async def test_more_than_a_page_is_loaded_whole(etcd: RealEtcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.store.etcd.PAGE", 2)
    async with leading(etcd) as leadership:
        await leadership.store.save_instance(serving())
        await leadership.store.save_run(record(Drive.open(serving()).run, 5.0))
        loaded = await leadership.store.load()
        assert (len(loaded.instances), len(loaded.runs), loaded.next_instance_id) == (1, 1, serving().id + 1)


async def test_a_stopped_etcd_takes_the_leadership_away_in_the_time_of_a_lease(etcd: RealEtcd) -> None:
    async with leading(etcd) as leadership:
        etcd.stop()
        began = trio.current_time()
        with leadership.scope:
            await trio.sleep_forever()
        assert leadership.is_lost
        assert trio.current_time() - began <= LEASE_SEC
        with pytest.raises((CannotWrite, Deposed)):
            await leadership.store.save_instance(serving())
        etcd.go_on()


async def test_what_cannot_be_read_is_named(etcd: RealEtcd) -> None:
    async with leading(etcd) as leadership:
        await leadership.store.save_instance(serving())
        await _put(etcd, b"/podvisor/instance/default/llama", b"{")
        with pytest.raises(CannotOpen, match="/podvisor/instance/default/llama in etcd cannot be read"):
            await leadership.store.load()


async def test_a_user_logs_in_and_again_when_its_token_is_over(etcd: RealEtcd) -> None:
    await _ask(etcd, "/v3/auth/user/add", {"name": "root", "password": "secret"})
    await _ask(etcd, "/v3/auth/role/add", {"name": "root"})
    await _ask(etcd, "/v3/auth/user/grant", {"user": "root", "role": "root"})
    await _ask(etcd, "/v3/auth/enable", {})
    async with (
        _client(Access((etcd.url,))) as nobody,
        _client(Access((etcd.url,), "root", lambda: "secret")) as root,
        _client(Access((etcd.url,), "root", lambda: "wrong")) as stranger,
    ):
        with pytest.raises(EtcdRefused, match="user name is empty"):
            await nobody.get(b"k")
        with pytest.raises(EtcdRefused, match="authentication failed"):
            await stranger.get(b"k")
        assert await root.get(b"k") is None
        await etcd.kill()
        await etcd.start()
        assert await root.get(b"k") is None


@asynccontextmanager
async def _client(access: Access) -> AsyncIterator[EtcdClient]:
    client = EtcdClient(access, try_sec=10)
    try:
        yield client
    finally:
        await client.aclose()


async def _revoke_all(etcd: RealEtcd) -> None:
    for lease in (await _ask(etcd, "/v3/lease/leases", {}))["leases"]:
        await _ask(etcd, "/v3/lease/revoke", lease)


async def _put(etcd: RealEtcd, key: bytes, value: bytes) -> None:
    await _ask(etcd, "/v3/kv/put", {"key": key, "value": value})


async def _ask(etcd: RealEtcd, path: str, body: dict[str, object]) -> dict[str, list[dict[str, object]]]:
    async with httpx.AsyncClient(base_url=etcd.url, trust_env=False) as client:
        answer = await client.post(path, content=msgspec.json.encode(body))
        assert answer.status_code == 200, answer.text
        found: dict[str, list[dict[str, object]]] = answer.json()
        return found
