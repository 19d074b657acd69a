"""The controller's HTTP API: what is refused and how, what tools get, who may call."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from controller.app import compose
from controller.election import Leadership
from controller.events import ControllerEvent, EventLog
from controller.model.member import Member
from controller.model.registration import member_of
from controller.model.relaunch.exchange import Probe, Refused, Silence, Unreachable
from controller.model.settings import RelaunchSettings
from controller.policy import Policy
from controller.store.memory import MemoryStore
from controller.supervisors import Supervisors
from supervisor import wire
from supervisor.shared.event_ring import KEPT
from supervisor.shared.serving import Message, Receive, Send
from supervisor.shared.tokens import TokenFile
from tests.support.controller_world import open_world
from tests.support.fake_supervisor import Script
from tests.support.memory_network import MemoryNetwork, open_memory_network
from tests.unit.controller_gang import registration

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


@pytest.mark.parametrize(
    "route, body, said",
    [
        ("register", b"", "missing fields: job_name, model_name"),
        ("register", b"{", "not JSON"),
        ("register", b"[]", "Expected `object`"),
        ("heartbeat", b'{"job_name": 3, "ins_id": 0, "ip": "", "status": {}}', "$.job_name"),
        (
            "heartbeat",
            b'{"job_name": "j", "ins_id": 0, "ip": "", "status": {"x": "normal"}}',
            "matching regex '^[0-9]{1,9}$' - at `key` in `$.status`",
        ),
        ("heartbeat", b'{"job_name": "j", "ins_id": 0, "ip": "", "status": {"1": "fine"}}', "fine"),
        (
            "heartbeat",
            '{"job_name": "j", "ins_id": 0, "ip": "", "status": {"\u0663": "normal"}}'.encode(),
            "`$.status`",
        ),
        ("heartbeat", b'{"job_name": "j", "ins_id": -1, "ip": "", "status": {}}', ">= 0 - at `$.ins_id`"),
        ("heartbeat", b'{"job_name": "j", "ins_id": 1.5, "ip": "", "status": {}}', "got `float` - at `$.ins_id`"),
        ("heartbeat", b'{"job_name": "", "ins_id": 0, "ip": "", "status": {}}', "length >= 1 - at `$.job_name`"),
        ("heartbeat", b'{"job_name": "j", "ins_id": 0, "ip": "", "status": {}, "term": 9007199254740992}', "$.term"),
        ("terminate_instance", b'{"instance_id": ' + b"9" * 30 + b"}", "$.instance_id"),
        ("terminate_instance", b'{"instance_id": ' + b"9" * 5000 + b"}", "out of range"),
        ("terminate_instance", b'{"instance_id": 1, "reason": 1e999}', "$.reason"),
        ("terminate_instance", b'{"instance_id": 1, "more": 1e999, "reason": 1}', "$.reason"),
        ("terminate_instance", b'{"instance_id": NaN}', "not JSON"),
        ("terminate_instance", b'{"instance_id": 1, "reason": "\xff"}', "not JSON: Invalid UTF-8"),
        ("terminate_instance", b'{"instance_id": 1, "reason": "\\ud800"}', "not JSON"),
        ("terminate_instance", b'{"instance_id": 1} {}', "trailing"),
        ("terminate_instance", b'{"more": ' + b"[" * 5000 + b"]" * 5000 + b"}", "nested too deeply"),
        ("terminate_instance", b"null", "Expected `object`"),
        ("terminate_instance", b"\xef\xbb\xbf{}", "not JSON"),
        ("register", b'{"parallel_config": {"tp_size": -1}}', "missing fields: job_name"),
        ("report_software_fault", b'{"engine_id": 1}', "missing fields: exception_type"),
        ("terminate_instance", b'{"reason": "x"}', "missing fields: instance_id"),
    ],
)
async def test_a_malformed_body_is_answered_400_naming_the_field(
    autojump_clock: MockClock, route: str, body: bytes, said: str
) -> None:
    async with open_world() as world:
        answer = await world.client.post(f"/controller/{route}", content=body)
        assert answer.status_code == 400
        error = wire.decode(wire.ErrorBody, answer.content)
        assert error.error is wire.ErrorCode.MALFORMED
        assert said in error.message


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", "/v1/instances/7", 404),
        ("GET", "/v1/relaunches/7", 404),
        ("POST", "/v1/relaunches/7/abort", 404),
        ("POST", "/v1/instances/7/relaunch", 404),
        ("POST", "/v1/instances/7/reset-failed", 404),
        ("GET", "/nothing/here", 404),
        ("GET", "/controller/register", 405),
        ("GET", "/v1/events?since=x", 400),
        ("GET", f"/v1/events?since={'9' * 5000}", 400),
        ("GET", "/v1/events?since=1&since=2", 400),
        ("GET", "/v1/events?folow=0", 400),
        ("GET", "/v1/instances/x", 400),
        ("GET", f"/v1/instances/{'9' * 5000}", 400),
        ("GET", "//v1/instances", 404),
        ("GET", "/static/x", 404),
        ("OPTIONS", "/v1/instances", 405),
    ],
)
async def test_every_refusal_is_json(autojump_clock: MockClock, method: str, path: str, status: int) -> None:
    async with open_world() as world:
        answer = await world.client.request(method, path)
        assert answer.status_code == status
        assert wire.decode(wire.ErrorBody, answer.content).message


async def test_a_method_that_a_path_does_not_take_is_told_which_it_takes(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        answer = await world.client.delete("/v1/instances")
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


async def test_a_body_that_is_no_json_by_its_own_word_is_not_read(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        for kind, status in (("text/html", 415), ("application/json; charset=utf-8", 404), ("", 404)):
            headers = {"Content-Type": kind} if kind else {}
            answer = await world.client.post("/v1/instances/7/relaunch", content=b"{}", headers=headers)
            assert answer.status_code == status
        said = (await world.client.post("/v1/instances/7/relaunch", data={"reason": "x"})).json()["message"]
        assert said == "Content-Type: found 'application/x-www-form-urlencoded', expected application/json"


async def test_a_body_that_is_too_large_is_answered_413(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        answer = await world.client.post("/controller/register", content=b" " * (1 << 20) + b"x")
        assert answer.status_code == 413
        assert "larger than 1048576 bytes" in wire.decode(wire.ErrorBody, answer.content).message


async def test_an_unknown_heartbeat_is_answered_503(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        beat = wire.HeartbeatMsg(job_name="j", ins_id=4, ip="10.9.9.9", status={})
        answer = await world.client.post("/controller/heartbeat", content=wire.encode(beat))
        assert answer.status_code == 503


async def test_upstreams_probes_answer(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        for path in ("/startup", "/readiness", "/liveness"):
            assert (await world.client.get(path)).status_code == 200


async def test_tools_get_what_the_design_promises(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(load_sec=30))
        await world.until(lambda: len(world.did("start")) == 2)
        (view,) = (await world.client.get("/v1/instances")).json()["instances"]
        assert view["recovery"]["strategy"] == "engine_relaunch"
        assert view["recovery"]["step"] == "await"
        await world.until_active()
        (view,) = (await world.client.get("/v1/instances")).json()["instances"]
        one = (await world.client.get(f"/v1/instances/{view['id']}")).json()
        assert (one["status"], one["epoch"], one["recovery"]) == ("active", 1, None)
        assert {"pod_ip", "port", "node_rank", "boot_id", "heartbeat_age_sec", "freeze_remaining_sec"} <= set(
            one["supervisors"][0]
        )
        assert [(e["id"], e["ip"], e["port"], e["status"]) for e in one["endpoints"]] == [
            (0, gang[0].ip, 8000, "normal"),
            (1, gang[1].ip, 8000, "normal"),
        ]
        (run,) = (await world.client.get("/v1/relaunches")).json()["relaunches"]
        assert (run["outcome"], run["phase"]) == ("done", 1)
        assert all(step["started_at"].endswith("Z") and step["ended_at"] for step in run["steps"])
        assert run["supervisors"] == [f"{fake.ip}:1026" for fake in gang]


async def test_tools_see_which_endpoints_take_no_requests(autojump_clock: MockClock) -> None:
    """Of an engine that spans nodes, all but the first rank's."""
    async with open_world() as world:
        for index in (0, 1):
            message = registration(index, nnodes=2, parallel_config=wire.ParallelConfig(dp_size=1))
            await world.client.post("/controller/register", content=wire.encode(message))
        (view,) = (await world.client.get("/v1/instances")).json()["instances"]
        assert [endpoint["headless"] for endpoint in view["endpoints"]] == [False, True]


async def test_events_are_followed_from_where_a_reader_was(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.add_gang(size=2)
        seen: list[ControllerEvent] = []
        with trio.fail_after(60):
            async with world.client.stream("GET", "/v1/events?since=1", timeout=60) as answer:
                assert answer.headers["Content-Type"].startswith("application/x-ndjson")
                async for line in answer.aiter_lines():
                    if line:
                        seen.append(msgspec.json.decode(line, type=ControllerEvent))
                    if seen and (seen[-1].kind, seen[-1].status) == ("instance", "active"):
                        break
        assert [event.id for event in seen] == list(range(2, seen[-1].id + 1))
        assert {event.kind for event in seen} == {"member", "run", "identity", "instance"}
        assert all(event.run_id and event.step for event in seen if event.kind == "run")


async def test_a_quiet_event_stream_stays_open_as_sse(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        lines: list[str] = []
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "0"}
        async with world.client.stream("GET", "/v1/events", headers=headers, timeout=1000) as answer:
            async for line in answer.aiter_lines():
                lines.append(line)
                if len([line for line in lines if line.startswith(":")]) == 10:
                    break
                if len(lines) == 4:
                    world.it.events.append("controller", "something")
        assert json.loads(next(line for line in lines if line.startswith("data: "))[6:])["message"] == "something"


def test_a_reader_that_fell_behind_is_told_so() -> None:
    events = EventLog()
    for number in range(KEPT + 10):
        events.append("controller", f"event {number}", level="debug")
    found = events.since(0)
    assert (found[0].kind, found[0].id) == ("gap", 10)
    assert len(found) == KEPT + 1
    assert events.since(10)[0].id == 11
    assert events.since(10**9)[0].kind == "gap"


async def test_an_instance_without_any_budget_is_held_until_it_is_reset(autojump_clock: MockClock) -> None:
    policy = Policy(relaunch=RelaunchSettings(engine_relaunch_max_attempts=1))
    async with open_world(policy) as world:
        gang = world.add_gang(size=2)
        instance = await world.until_active()
        gang[0].change(load_fails=True)
        gang[1].kill_engine()
        await world.until(lambda: world.instance().held is not None)
        await world.until(lambda: world.it.registry.recoveries() == [])
        refused = await world.client.post(f"/v1/instances/{instance.id}/relaunch")
        assert refused.status_code == 409
        assert "is held: its containers restarted 1 times" in refused.json()["message"]
        await world.until(lambda: len(world.did("register")) == 4)
        await trio.sleep(10)
        view = (await world.client.get(f"/v1/instances/{instance.id}")).json()
        assert view["reason"].startswith("held: its containers restarted 1 times")
        gang[0].change(load_fails=False)
        answer = await world.client.post(f"/v1/instances/{instance.id}/reset-failed")
        assert answer.status_code == 200
        active = await world.until_active(epoch=3)
        assert not active.held


async def test_people_see_what_a_gang_waits_for(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.add_gang(size=2, script=Script(dependencies_sec=60))
        await world.until(lambda: len(world.did("register")) == 2)
        await trio.sleep(30)
        (view,) = (await world.client.get("/v1/instances")).json()["instances"]
        waits = "waits for the dependencies of 10.0.0.0:1026, 10.0.0.1:1026"
        assert view["reason"] == waits
        await world.until_active()
        assert [event.message for event in world.it.events.since(0)].count(waits) == 1
        (view,) = (await world.client.get("/v1/instances")).json()["instances"]
        assert view["reason"].startswith("all endpoints are normal")


async def test_people_see_a_registration_that_is_refused(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        for number in range(20):
            await trio.sleep(10)
            for index, digest in ((0, "sha256:a"), (1, "sha256:b")):
                message = registration(index, config_digest=digest)
                answer = await world.client.post("/controller/register", content=wire.encode(message))
                assert answer.status_code == (409 if index else 200), number
        difference = "its config_digest is sha256:b, not sha256:a, as 10.0.0.1:1026 has registered"
        (view,) = (await world.client.get("/v1/instances")).json()["instances"]
        assert view["reason"].startswith("1 of 2 members: node 1 missing; refused: 10.0.0.2:1026")
        assert difference in view["reason"]
        told = [event for event in world.it.events.since(0) if difference in event.message]
        assert [(event.kind, event.level) for event in told] == [("member", "warning")]


async def test_people_see_who_cannot_be_reached_and_why(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2, script=Script(dependencies_sec=600))
        await world.until(lambda: len(world.did("register")) == 2)
        world.network.partition(gang[1].ip, "controller")
        await trio.sleep(30)
        (view,) = (await world.client.get("/v1/instances")).json()["instances"]
        assert view["reason"] == "10.0.0.1:1026 cannot be reached"
        world.network.heal(gang[1].ip, "controller")
        world.network.heal("controller", gang[1].ip)
        await trio.sleep(30)
        told = [event.message for event in world.it.events.since(0) if event.member == "default/job/#1"]
        assert [message.split(";")[0] for message in told[1:]] == [
            "no heartbeat of 10.0.0.1:1026 for 12 s",
            "10.0.0.1:1026 is heard again",
        ]
        assert "no answer within 2 s" in told[1]


def member(ip: str, port: int) -> Member:
    message = registration(0, pod_ip=ip, nm_port=str(port))
    return member_of(message, message.business_port, message.mgmt_port, 0.0)


ROLES = "read looker\noperate operator\nnode supervisor\n"


@pytest.mark.parametrize(
    "token, statuses",
    [("looker", (200, 403, 403)), ("operator", (200, 404, 403)), ("supervisor", (200, 404, 400))],
)
async def test_a_token_may_do_what_its_role_says(
    autojump_clock: MockClock, tmp_path: Path, token: str, statuses: tuple[int, ...]
) -> None:
    (tmp_path / "token").write_text(ROLES)
    requests = (("GET", "/v1/instances"), ("POST", "/v1/instances/1/relaunch"), ("POST", "/controller/register"))
    async with open_memory_network() as network:
        await Guarded(network, tmp_path / "token").start()
        async with network.client("tool", "http://controller:1026") as client:
            client.headers["Authorization"] = f"Bearer {token}"
            answers = [await client.request(*request) for request in requests]
    assert tuple(answer.status_code for answer in answers) == statuses
    assert all("needs the role" in answer.json()["message"] for answer in answers if answer.status_code == 403)


class Guarded:
    """A controller that wants a token."""

    def __init__(self, network: MemoryNetwork, path: Path) -> None:
        self.network = network
        self.path = path

    async def start(self) -> None:
        tokens = TokenFile(self.path, trio.current_time())
        controller = await compose(Policy(), Leadership(MemoryStore(1)), Supervisors(), tokens)
        self.network.listen("controller", 1026, controller.app)


@pytest.mark.parametrize(
    "path, header, status",
    [
        ("/v1/instances", None, 401),
        ("/v1/instances", "Bearer wrong", 403),
        ("/v1/instances", "Bearer secret", 200),
        ("/liveness", None, 200),
        ("/readiness", None, 200),
    ],
)
async def test_a_token_is_asked_for_but_not_by_the_probes(
    autojump_clock: MockClock, tmp_path: Path, path: str, header: str | None, status: int
) -> None:
    (tmp_path / "token").write_text("secret\n")
    async with open_memory_network() as network:
        await Guarded(network, tmp_path / "token").start()
        async with network.client("tool", "http://controller:1026") as client:
            answer = await client.get(path, headers={"Authorization": header} if header else {})
            assert answer.status_code == status
            if status == 401:
                assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_the_controller_shows_its_token_to_supervisors(autojump_clock: MockClock) -> None:
    seen: list[str | None] = []

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        seen.append(headers.get(b"authorization", b"").decode())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"status": true}'})

    async with open_memory_network() as network:
        network.listen("10.0.0.1", 1026, application)
        supervisors = Supervisors(lambda _: "secret", lambda: network.transport("controller"))
        await supervisors.ask(member("10.0.0.1", 1026), Probe("run"), 2)
        await supervisors.aclose()
    assert seen == ["Bearer secret"]


async def test_a_flood_of_heartbeats_changes_nothing_and_opens_nothing(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        gang = world.add_gang(size=2)
        await world.until_active()
        before = world.it.events.since(0)[-1].id
        beat = wire.HeartbeatMsg(
            job_name="job",
            ins_id=world.instance().id,
            ip=gang[0].ip,
            status={"0": wire.EndpointStatus.NORMAL},
            boot_id=gang[0].boot_id,
            epoch=1,
            sequence=10_000,
        )

        async def many() -> None:
            async with world.network.client(gang[0].ip, "http://controller:1026") as client:
                for _ in range(200):
                    assert (await client.post("/controller/heartbeat", content=wire.encode(beat))).is_success

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(many)
        assert world.it.events.since(0)[-1].id == before
        assert len(world.did("prepare")) == 2


async def test_errors_of_supervisors_are_values(autojump_clock: MockClock) -> None:
    async def rambling(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>"})

    async def silent(scope: Message, receive: Receive, send: Send) -> None:
        await trio.sleep_forever()

    async with open_memory_network() as network:
        network.listen("rambling", 1, rambling)
        network.listen("silent", 1, silent)
        supervisors = Supervisors(transport=lambda: network.transport("controller"))
        began = trio.current_time()
        answer = await supervisors.ask(member("nobody", 1), Probe(""), 2)
        assert isinstance(answer, Unreachable)
        assert answer.kind is Silence.REFUSED
        answer = await supervisors.ask(member("rambling", 1), Probe(""), 2)
        assert isinstance(answer, Refused)
        assert answer.code is wire.ErrorCode.FAILED
        answer = await supervisors.ask(member("silent", 1), Probe(""), 2)
        assert isinstance(answer, Unreachable)
        assert answer.kind is Silence.SILENT
        assert trio.current_time() - began < 2.1
        network.partition("controller", "silent")
        await supervisors.close_idle(trio.current_time() + 301)
        answer = await supervisors.ask(member("silent", 1), Probe(""), 2)
        assert isinstance(answer, Unreachable)
        assert answer.kind is Silence.SILENT
        await supervisors.aclose()
