"""What a pod tells as events: a relaunch from the death to the handshake, the arbiter, floods, the controller."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from supervisor.engine.heartbeat import Connection
from supervisor.pod_events import PodEvents
from supervisor.process.drops import Drop
from supervisor.service.exits import ExitRecord
from supervisor.service.outcomes import Transition
from supervisor.shared.error_window import DEFAULT_WINDOW_SEC
from supervisor.unit.events import Tick
from supervisor.unit.restart import Ending, Result
from supervisor.unit.state import UnitState
from supervisor.wire import EventKind, Step, SupervisorEvent
from tests.support.virtual_gang import Gang, VirtualPod, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


def events_of(pod: VirtualPod, *kinds: EventKind) -> list[SupervisorEvent]:
    return [event for event in pod.it.pod.events.ring.since(0) if not kinds or event.kind in kinds]


async def relaunched(gang: Gang) -> list[SupervisorEvent]:
    await gang.until_active()
    last = events_of(gang.pods[1])[-1].id
    gang.pods[1].kill_engine()
    await gang.until_active(epoch=2)
    return [event for event in events_of(gang.pods[1]) if event.id > last]


async def test_a_relaunch_can_be_read_from_the_events(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        events = await relaunched(gang)
        metrics = gang.pods[1].it.pod.metrics
    assert metrics.relaunches == {"done": 1}
    assert metrics.exits["engine", "signal"] == 1
    assert metrics.steps[Step.LOADING].sum >= 5.0
    (exit_,) = [event for event in events if event.kind is EventKind.EXIT]
    assert exit_.exit is not None
    assert (exit_.unit, exit_.level, exit_.epoch, exit_.exit.signal) == ("engine", "warning", 1, "SIGKILL")
    assert not exit_.exit.asked
    assert "died" in next(event.message for event in events if event.kind is EventKind.ENGINE)
    steps = [event for event in events if event.kind is EventKind.RELAUNCH]
    assert [event.step for event in steps] == [
        Step.STOPPING,
        Step.CLEANING,
        Step.PREPARED,
        Step.STARTING,
        Step.LOADING,
        Step.DONE,
    ]
    assert {event.epoch for event in steps} == {2}
    assert len({event.run_id for event in steps}) == 1
    assert steps[-1].lasted_sec is not None
    assert steps[-1].lasted_sec >= 5.0, "so long the engine loads"
    freezes = [event.message for event in events if event.kind is EventKind.FREEZE]
    assert freezes[0].startswith("frozen: ends in")
    assert freezes[-1] == "unfrozen while done"
    moves = [event for event in events if event.kind is EventKind.UNIT]
    assert {event.unit for event in moves} == {"engine"}
    assert (moves[0].previous, moves[-1].sub_state, moves[-1].state) == ("ready", "ready", "active")
    assert [event.id for event in events] == list(range(events[0].id, events[-1].id + 1))


async def test_an_event_of_an_exit_leaves_lines_and_evidence_where_they_are_kept(autojump_clock: MockClock) -> None:
    """Thousands of events are kept, and a diagnosis alone has 64 KiB."""
    events = PodEvents(5)
    record = ExitRecord(
        Ending(Result.EXIT_CODE, "exit status 1", code=1), datetime.now(UTC), 1, False, ("a line",), ("a stack",)
    )
    events.unit_moved(Transition("engine", Tick(), UnitState(), UnitState(), (), 1, record))
    told = events.ring.since(0)[-1].exit
    assert told is not None
    assert (told.code, told.log_tail, told.diagnosis) == (1, (), ())


async def test_the_arbiter_counts_up_to_the_end_and_the_end_says_why(autojump_clock: MockClock) -> None:
    async with open_gang(fault_tolerance={"enable_engine_relaunch": False}) as gang:
        await gang.until_active()
        pod = gang.pods[0]
        boot = pod.it
        pod.kill_engine()
        await gang.until(lambda: bool(pod.ended))
        events = boot.pod.events.ring.since(0)
    assert [event.arbiter_count for event in events if event.kind is EventKind.ARBITER] == [1, 2, 3, 4, 5]
    end = [event for event in events if event.kind is EventKind.SUPERVISOR][-1]
    assert (end.exit_code, end.level) == (255, "warning")
    assert "the engine process is dead" in str(end.reason)


async def test_a_flood_of_drops_is_one_event_a_window_with_the_sum(autojump_clock: MockClock) -> None:
    events = PodEvents(arbiter_threshold=5)
    for _ in range(1000):
        events.output_dropped(Drop("web", "stdout", lost_bytes=10))
        events.output_dropped(Drop("web", "stderr", suppressed_lines=1))
    await trio.sleep(DEFAULT_WINDOW_SEC)
    events.output_dropped(Drop("web", "stdout", lost_bytes=10))
    told = [event for event in events.ring.since(0) if event.kind is EventKind.OUTPUT]
    assert [(event.stream, event.lost_bytes, event.suppressed_lines) for event in told] == [
        ("stdout", 10, None),
        ("stderr", None, 1),
        ("stdout", 10_000, None),
    ]
    assert told[-1].held_back == 999


async def test_the_controller_is_lost_and_found_once_each(autojump_clock: MockClock) -> None:
    events, connection = PodEvents(arbiter_threshold=5), Connection()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(events.watch_controller, connection, lambda: "http://controller:1026")
        for answers in (False, True, True, False, False, True):
            await wait_all_tasks_blocked()
            if answers:
                connection.answers(trio.current_time())
            else:
                connection.fails("refused")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    told = [event for event in events.ring.since(0) if event.kind is EventKind.CONTROLLER]
    assert [(event.level, event.reason) for event in told] == [
        ("info", "not registered yet"),
        ("info", None),
        ("warning", "refused"),
        ("info", None),
    ]


def test_an_event_says_only_what_it_knows() -> None:
    event = SupervisorEvent(id=1, at="2026-01-01T00:00:00.000Z", kind=EventKind.UNIT, level="info", message="m")
    assert msgspec.json.decode(msgspec.json.encode(event)).keys() == {"id", "at", "kind", "level", "message"}
