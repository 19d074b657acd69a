"""Who may call what of the controller: every route, each kind of caller, and that a refused call changes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import pytest
import trio
from trio.testing import MockClock

from controller.api.route import Route
from controller.app import compose
from controller.door import Controller
from controller.election import Leadership
from controller.model import instance as instances
from controller.model.instance import Hold, Holder
from controller.policy import Policy
from controller.store.memory import MemoryStore
from controller.supervisors import Supervisors
from supervisor import wire
from supervisor.shared.tokens import Role, TokenFile
from tests.support.memory_network import open_memory_network
from tests.unit.controller_gang import registration

# httpx leaves its generators to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

TOKENS = """
read read-token
operate operate-token
node node-token
read@team-a read-a
operate@team-a operate-a
node@team-a node-a
node@team-b node-b
"""
RANKS = {"read": Role.READ, "operate": Role.OPERATE, "node": Role.NODE}
CALLERS = (None, "wrong", "read-token", "operate-token", "node-token", "read-a", "operate-a", "node-a", "node-b")


@dataclass
class Guarded:
    """A controller that wants tokens, with one instance of one pod in the namespace team-a."""

    controller: Controller
    client: httpx.AsyncClient
    instance_id: int = 0
    run_id: str = ""

    async def ask(self, token: str | None, method: str, path: str, body: bytes = b"") -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        # Metrics are written in a thread: while it works this clock jumps, so that no time-out may be running.
        return await self.client.request(method, path, content=body, headers=headers, timeout=None)

    def state(self) -> object:
        """All that a call could have changed."""
        registry = self.controller.registry
        return (
            [
                (entry.instance, entry.recovery, repr(entry.recovery and vars(entry.recovery)))
                for entry in registry.entries()
            ],
            [repr(vars(entry)) for entry in registry.entries()],
            tuple(registry.closed_runs),
            (registry.next_id, registry.terms.current, len(registry.opened), len(registry.departures)),
            self.controller.events.since(0),
        )


@asynccontextmanager
async def open_guarded(directory: Path) -> AsyncIterator[Guarded]:
    (directory / "tokens").write_text(TOKENS)
    async with open_memory_network() as network, network.client("tool", "http://controller:1026") as client:
        tokens = TokenFile(directory / "tokens", trio.current_time())
        controller = await compose(Policy(), Leadership(MemoryStore(1)), Supervisors(), tokens)
        network.listen("controller", 1026, controller.app)
        guarded = Guarded(controller, client)
        registered = await guarded.ask("node-a", "POST", "/controller/register", wire.encode(PEER))
        guarded.instance_id = wire.decode(wire.RegisterAnswer, registered.content).instance_id
        ready = msgspec.structs.replace(BEAT, prepared=True)
        assert (await guarded.ask("node-a", "POST", "/controller/heartbeat", wire.encode(ready))).status_code == 200
        (entry,) = controller.registry.entries()
        assert entry.recovery is not None, "an assembled instance is being started"
        guarded.run_id = entry.recovery.run_id
        yield guarded


PEER = registration(0, nnodes=1, namespace="team-a")
BEAT = wire.HeartbeatMsg(
    job_name=PEER.job_name,
    ins_id=0,
    ip=PEER.pod_ip,
    status={},
    namespace="team-a",
    nm_port="1026",
    boot_id=PEER.boot_id,
)
FAULT = wire.SoftwareFaultMsg(
    exception_type="died",
    exception_message="",
    engine_id=0,
    engine_status=wire.EngineHealth.DEAD,
    pod_ip=PEER.pod_ip,
    namespace="team-a",
)


def body(route: Route, instance_id: int) -> bytes:
    """One that has an effect if it is taken."""
    messages: dict[str, object] = {
        "/controller/register": registration(0, nnodes=1, namespace="team-a", boot_id="another"),
        "/controller/reregister": {
            **json.loads(wire.encode(PEER)),
            "instance_id": instance_id,
            "endpoints": [{"id": 0, "ip": PEER.pod_ip, "business_port": "10000", "mgmt_port": "10001"}],
            "boot_id": "another",
            "epoch": 1,
        },
        "/controller/heartbeat": msgspec.structs.replace(BEAT, sequence=7),
        "/controller/report_software_fault": FAULT,
        "/controller/report_hardware_fault": {"fault_code": 15790325, "fault_level": "L2", "pod_ip": PEER.pod_ip},
        "/controller/terminate_instance": {"instance_id": instance_id},
    }
    return msgspec.json.encode(messages[route.path]) if route.path in messages else b"{}"


def allowed(caller: str | None, route: Route) -> bool:
    if route.role is None:
        return True
    if caller in (None, "wrong"):
        return False
    role, _, namespace = str(caller).partition("-")
    in_namespace = route.role is Role.NODE or bool(route.variables)
    return RANKS[role] >= route.role and (namespace in ("token", "a") or not in_namespace)


async def routes() -> list[Route]:
    return list((await compose(Policy(), Leadership(MemoryStore(1)), Supervisors(), None)).routes.declared)


ROUTES = trio.run(routes)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
async def test_who_may_not_is_refused_and_nothing_has_happened(
    autojump_clock: MockClock, tmp_path: Path, route: Route
) -> None:
    for caller in CALLERS:
        async with open_guarded(tmp_path) as guarded:
            path = route.template.format(instance_id=guarded.instance_id, run_id=guarded.run_id)
            path += "?follow=0" if route.template == "/v1/events" else ""
            before = guarded.state()
            answer = await guarded.ask(caller, route.method, path, body(route, guarded.instance_id))
            if allowed(caller, route):
                assert answer.status_code not in (401, 403), (caller, answer.text)
                assert answer.status_code != 400, answer.text
                continue
            expected = 401 if caller is None else 403
            if route.path == "/controller/report_hardware_fault" and caller == "node-b":
                expected = 503  # it names no namespace: of the members that this caller may speak for, none is there
            assert answer.status_code == expected, (caller, answer.text)
            assert wire.decode(wire.ErrorBody, answer.content).message
            assert guarded.state() == before, caller


async def test_a_call_that_is_allowed_has_an_effect_so_that_the_comparison_can_fail(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    # Nothing is held here; see below.
    changing = [route for route in ROUTES if route.method == "POST" and route.path != "/v1/reset-failed"]
    assert len(changing) >= 9
    for route in changing:
        async with open_guarded(tmp_path) as guarded:
            path = route.template.format(instance_id=guarded.instance_id, run_id=guarded.run_id)
            if path.endswith("/release"):  # what is not held has nothing to be released from
                await guarded.ask("node-token", "POST", path.replace("release", "hold"), b"{}")
            before = guarded.state()
            answer = await guarded.ask("node-token", "POST", path, body(route, guarded.instance_id))
            # No centre runs here that would write the row for which an abort waits: its effect is there all the same.
            expected = {503} if path.endswith("/abort") else {200, 202, 409}
            assert answer.status_code in expected, (path, answer.text)
            assert (guarded.state() != before) or answer.status_code == 409, path


async def test_lists_show_only_what_lies_in_the_callers_namespaces(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        other = registration(0, nnodes=1, namespace="team-b", job_name="other", pod_ip="10.0.9.1")
        assert (await guarded.ask("node-b", "POST", "/controller/register", wire.encode(other))).status_code == 200
        guarded.controller.events.append("controller", "of the whole fleet")

        async def seen(token: str) -> tuple[set[str], int, set[str | None]]:
            metrics = (await guarded.ask(token, "GET", "/metrics")).text
            measured = set(re.findall(r'podvisor_heartbeat_seconds{.*namespace="([^"]+)"', metrics))
            instances = (await guarded.ask(token, "GET", "/v1/instances")).json()["instances"]
            runs = (await guarded.ask(token, "GET", "/v1/relaunches")).json()["relaunches"]
            events = (await guarded.ask(token, "GET", "/v1/events?follow=0")).text.splitlines()
            assert measured == {view["namespace"] for view in instances}
            return (
                measured,
                len(runs),
                {json.loads(line).get("namespace") for line in events},
            )

        assert await seen("read-a") == ({"team-a"}, 1, {"team-a"})
        assert await seen("node-b") == ({"team-b"}, 0, {"team-b"})
        assert await seen("read-token") == ({"team-a", "team-b"}, 1, {"team-a", "team-b", None})


async def test_an_unextended_peer_reports_in_the_namespace_in_which_it_registered(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """It names no namespace, and must not be taken for the pod with its address in another one."""
    async with open_guarded(tmp_path) as guarded:
        report = json.loads(wire.encode(FAULT))
        del report["namespace"]
        for token, status in (("node-a", 403), ("node-b", 403), ("node-token", 503)):
            answer = await guarded.ask(token, "POST", "/controller/report_software_fault", msgspec.json.encode(report))
            assert answer.status_code == status


async def test_a_refused_caller_is_named_in_the_log_once_and_his_token_never(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_guarded(tmp_path) as guarded:
        for _ in range(5):
            await guarded.ask("s3cret-guess", "GET", "/v1/instances")
        await guarded.ask("read-a", "POST", f"/v1/instances/{guarded.instance_id}/relaunch")
    told = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(told) == 2
    assert "this token is not the right one" in told[0]
    assert told[1].endswith("needs the role operate; this token grants read in namespace team-a")
    assert "s3cret" not in caplog.text


def test_what_names_no_instance_and_yet_changes_something_is_known_and_looked_at_below() -> None:
    """Nobody else checks in which namespaces such a route may change anything."""
    unnamed = {route.path for route in ROUTES if route.role is Role.OPERATE and not route.variables}
    assert unnamed == {"/v1/reset-failed"}


async def test_what_names_no_instance_changes_only_those_of_the_callers_namespaces(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_guarded(tmp_path) as guarded:
        registry = guarded.controller.registry
        other = registration(0, nnodes=2, namespace="team-b", job_name="other", pod_ip="10.0.9.1")
        assert (await guarded.ask("node-b", "POST", "/controller/register", wire.encode(other))).status_code == 200
        for entry in registry.entries():
            registry.change(entry, instances.hold(entry.instance, Hold(Holder.BUDGET, "its budget is spent")))

        async def held_after(token: str) -> list[str]:
            assert (await guarded.ask(token, "POST", "/v1/reset-failed")).status_code == 200
            return [entry.instance.key.namespace for entry in registry.entries() if entry.instance.held]

        assert await held_after("operate-a") == ["team-b"]
        assert await held_after("node-b") == []
