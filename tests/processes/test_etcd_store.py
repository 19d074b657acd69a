"""The election and the store against a real etcd: killed, stopped and compacted meanwhile."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import trio

from controller.election import Leadership
from controller.elections import election_of
from controller.model.relaunch.dispatch import record
from controller.sections import ControllerSection, EtcdSection
from controller.settings import Settings
from controller.store.base import CannotOpen, CannotWrite, Deposed
from controller.store.etcd import Keys
from controller.store.etcd_client import Access, EtcdClient, EtcdRefused, EtcdUnavailable
from controller.store.etcd_election import EtcdElection
from supervisor.shared.tls import TlsError
from tests.support.certificates import make_ca, make_certificate
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
        assert (len(loaded.instances), len(loaded.runs)) == (1, 1)
        assert loaded.next_instance_id > serving().id


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


async def test_an_etcd_without_room_keeps_the_leader_and_says_what_to_do(tmp_path: Path) -> None:
    async with real_etcd(tmp_path, {"quota-backend-bytes": str(4 << 20)}) as etcd, leading(etcd) as leadership:
        with suppress(AssertionError):  # until it is full
            for number in range(50):
                await _put(etcd, b"/other/%d" % number, bytes(1 << 20))
        with pytest.raises(CannotWrite, match=r"space exceeded; see that etcd has room"):
            await leadership.store.save_instance(serving())
        renewed = leadership.scope.deadline
        with trio.fail_after(PATIENCE_SEC):
            while leadership.scope.deadline == renewed:
                await trio.sleep(0.05)
        assert not leadership.is_lost


async def test_https_with_certificates_of_both_sides(tmp_path: Path) -> None:
    make_ca(tmp_path)
    make_certificate(tmp_path, "etcd", address="127.0.0.1")
    make_certificate(tmp_path, "controller")
    files = {
        name: str(tmp_path / name) for name in ("ca.crt", "etcd.crt", "etcd.key", "controller.crt", "controller.key")
    }
    ours = ssl.create_default_context(cafile=files["ca.crt"])
    ours.load_cert_chain(files["controller.crt"], files["controller.key"])
    options = {
        "cert-file": files["etcd.crt"],
        "key-file": files["etcd.key"],
        "trusted-ca-file": files["ca.crt"],
        "client-cert-auth": "true",
    }
    async with real_etcd(tmp_path, options, ours) as etcd:
        section = EtcdSection(
            endpoints=(etcd.url,),
            lease_sec=LEASE_SEC,
            ca=files["ca.crt"],
            cert=files["controller.crt"],
            key=files["controller.key"],
        )
        settings = Settings(controller=ControllerSection(store="etcd"), etcd=section)
        with trio.fail_after(PATIENCE_SEC):
            async with election_of(settings, "http://a:1026").campaign() as leadership:
                await leadership.store.save_instance(serving())
        stranger = EtcdClient(Access((etcd.url,)), try_sec=10)
        with pytest.raises(EtcdUnavailable, match="certificate verify failed"):
            await stranger.get(b"k")
        await stranger.aclose()


def test_certificates_that_are_not_there_are_named() -> None:
    settings = Settings(controller=ControllerSection(store="etcd"), etcd=EtcdSection(ca="/nowhere"))
    with pytest.raises(TlsError, match=r"files of \[etcd\]"):
        election_of(settings, "http://a:1026")


async def test_a_user_who_may_write_under_the_prefix_may_lead(etcd: RealEtcd) -> None:
    await _ask(etcd, "/v3/auth/user/add", {"name": "root", "password": "secret"})
    await _ask(etcd, "/v3/auth/user/add", {"name": "podvisor", "password": "ours"})
    await _ask(etcd, "/v3/auth/role/add", {"name": "fleet"})
    under = {"permType": "READWRITE", "key": b"/podvisor/", "range_end": b"/podvisor0"}
    await _ask(etcd, "/v3/auth/role/grant", {"name": "fleet", "perm": under})
    for user, role in (("root", "root"), ("podvisor", "fleet")):
        await _ask(etcd, "/v3/auth/role/add", {"name": "root"}) if role == "root" else None
        await _ask(etcd, "/v3/auth/user/grant", {"user": user, "role": role})
    await _ask(etcd, "/v3/auth/enable", {})
    access = Access((etcd.url,), "podvisor", lambda: "ours")
    with trio.fail_after(PATIENCE_SEC):
        async with EtcdElection(access, Keys("/podvisor/"), "http://a:1026", LEASE_SEC).campaign() as leadership:
            await leadership.store.save_instance(serving())
            assert len((await leadership.store.load()).instances) == 1
        async with EtcdElection(access, Keys("/podvisor/"), "http://b:1026", LEASE_SEC).campaign():
            pass


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
    async with etcd.client() as client:
        answer = await client.post(path, content=msgspec.json.encode(body))
        assert answer.status_code == 200, answer.text
        found: dict[str, list[dict[str, object]]] = answer.json()
        return found
