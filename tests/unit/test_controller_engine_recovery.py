"""One attempt in which all engines are asked to recover themselves: any order of answers, heartbeats and losses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model.engine_recovery import Ask, Attempt, begin, step
from controller.model.instance import Instance
from controller.model.outcome import Failed, Recovered
from controller.model.relaunch.exchange import (
    Accepted,
    Answer,
    Answered,
    Event,
    Fault,
    Heartbeat,
    MemberSilent,
    Probe,
    Refused,
    Registered,
    Tick,
)
from supervisor.wire import EndpointStatus, EngineRestartMsg, ErrorCode, RecoveryState, Step
from tests.unit.controller_gang import FEATURES, SILENT, seen, serving

INSTANCE = serving(features=(*FEATURES, "recover"))
ONE, OTHER = (member.key for member in INSTANCE.members)
DONE = Accepted(Step.DONE, recovery=RecoveryState.DONE)
RUNNING = Accepted(Step.DONE, recovery=RecoveryState.RUNNING)
SICK = seen(INSTANCE, ONE, 1.0, EndpointStatus.ABNORMAL)


def opened(instance: Instance = INSTANCE) -> tuple[Attempt, tuple[Ask, ...]]:
    return begin(instance, recovery="uce", fault_code=0x80E01801, term=7, run_id="run-1", reason="a test")


def after(*events: Event) -> tuple[Attempt, tuple[Ask, ...]]:
    attempt, asks = opened()
    for event in events:
        attempt, asks = step(attempt, event)
    return attempt, asks


def failure(attempt: Attempt) -> str:
    assert isinstance(attempt.outcome, Failed), attempt.outcome
    return attempt.outcome.reason


def test_every_member_is_asked_by_its_boot_in_the_epoch_that_runs() -> None:
    attempt, asks = opened()
    assert attempt.outcome is None
    for ask, member in zip(asks, INSTANCE.members, strict=True):
        request = ask.request
        assert isinstance(request, EngineRestartMsg)
        assert (request.action, request.recovery, request.fault_code) == ("recover", "uce", 0x80E01801)
        assert (request.boot_id, request.epoch, request.term) == (member.boot_id, INSTANCE.epoch, 7)


@pytest.mark.parametrize(
    "instance, why",
    [
        (serving(), "declares no way to recover"),
        (replace(INSTANCE, members=INSTANCE.members[:1]), "not assembled"),
        (replace(INSTANCE, epoch=0), "not assembled"),
        (replace(INSTANCE, members=(INSTANCE.members[0], replace(INSTANCE.members[1], in_epoch=False))), "restarted"),
    ],
)
def test_nobody_is_asked_when_one_cannot(instance: Instance, why: str) -> None:
    attempt, asks = opened(instance)
    assert (why in failure(attempt), asks) == (True, ())


def test_one_that_is_still_at_it_is_asked_again() -> None:
    first = opened()[1]
    attempt, asks = after(Answered(ONE, 0, RUNNING))
    assert (attempt.outcome, asks) == (None, first[:1])


@pytest.mark.parametrize(
    "answer, why",
    [
        (Refused(ErrorCode.FAILED, "no"), "answers failed: no"),
        (Refused(ErrorCode.BUSY, "no"), "answers busy"),
        (SILENT, "no answer"),
        (Accepted(Step.DONE), "does not say"),
    ],
)
def test_one_that_cannot_is_enough_to_fail(answer: Answer, why: str) -> None:
    assert why in failure(after(Answered(OTHER, 0, DONE), Answered(ONE, 0, answer))[0])


@pytest.mark.parametrize(
    "event, why",
    [
        (Fault(ONE, 4, "engine 0: killed"), "meanwhile engine 0: killed"),
        (MemberSilent(ONE), "cannot be reached"),
        (Registered(ONE, "boot-9", None), "restarted"),
        (Heartbeat(ONE, replace(SICK, boot_id="boot-9")), "restarted"),
    ],
)
def test_what_is_lost_meanwhile_ends_it_at_once(event: Event, why: str) -> None:
    assert why in failure(after(event)[0])


def test_it_succeeds_only_when_all_have_recovered_and_serve_since() -> None:
    well = {key: seen(INSTANCE, key, 1.0) for key in (ONE, OTHER)}
    attempt, asks = after(Answered(ONE, 0, DONE))
    assert [type(ask.request) for ask in asks] == [Probe], "how it is now is asked"
    # What was seen before it said so does not count.
    attempt, _ = after(Heartbeat(OTHER, well[OTHER]), Answered(ONE, 0, DONE), Heartbeat(ONE, well[ONE]))
    assert attempt.outcome is None
    attempt, _ = after(Answered(ONE, 0, DONE), Heartbeat(ONE, SICK), Answered(OTHER, 0, DONE))
    attempt, _ = step(attempt, Heartbeat(OTHER, well[OTHER]))
    assert attempt.outcome is None, "one is abnormal still"
    attempt, _ = step(attempt, Answered(ONE, 0, well[ONE]))
    assert isinstance(attempt.outcome, Recovered)


ANSWERS = st.sampled_from([DONE, RUNNING, SILENT, Refused(ErrorCode.CONFLICT, "no"), SICK, seen(INSTANCE, ONE, 2.0)])
KEYS = st.sampled_from([ONE, OTHER])
EVENTS = st.one_of(
    st.builds(Answered, KEYS, st.just(0), ANSWERS),
    st.builds(Heartbeat, KEYS, st.sampled_from([SICK, seen(INSTANCE, OTHER, 2.0), replace(SICK, epoch=3)])),
    st.builds(Fault, KEYS, st.just(4), st.just("died")),
    st.builds(MemberSilent, KEYS),
    st.builds(Registered, KEYS, st.just("boot-9"), st.none()),
    st.just(Tick()),
)


@given(st.lists(EVENTS, max_size=12))
def test_success_is_never_claimed_for_an_engine_that_did_not_say_so(events: list[Event]) -> None:
    attempt, _ = opened()
    said = set()
    for event in events:
        if attempt.outcome is not None:
            break
        if isinstance(event, Answered) and event.answer == DONE:
            said.add(event.member)
        attempt, _ = step(attempt, event)
    if isinstance(attempt.outcome, Recovered):
        assert said == {ONE, OTHER}
    losses = (Fault, MemberSilent, Registered)
    if any(isinstance(event, losses) for event in events):
        assert attempt.outcome is not None
