"""What time alone changes, and which heartbeats are no news: neither may hide anything from whoever judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model.instance import (
    Instance,
    InstanceStatus,
    Verdict,
    abandon,
    activate,
    heard_again,
    observe,
    transition,
    unreachable,
)
from controller.model.member import Observation
from controller.model.need import run_needed, waits_for
from controller.model.silence import LONGEST_SEC, changes_at, is_no_news
from controller.model.verdict import AskDirectly, judge
from supervisor.wire import EndpointStatus, Step
from tests.unit.controller_gang import INSTANCE_SETTINGS, SETTINGS, Told, assembled, seen, serving

ASSEMBLE_SEC = 600.0
MOMENTS = st.floats(0, 700, allow_nan=False)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """In any state, its members heard at any time before 100, some asked in vain, some leaving."""
    instance = serving(3) if draw(st.booleans()) else assembled(draw(st.sampled_from([1, 3])))
    members = []
    for member in instance.members:
        if draw(st.booleans()):
            told = seen(
                instance,
                member.key,
                draw(st.floats(0, 100) | st.floats(97, 100)),
                draw(st.sampled_from([EndpointStatus.NORMAL] * 6 + list(EndpointStatus))),
                step=draw(st.sampled_from(Step)),
                leaving=draw(st.integers(0, 5)) == 0,
                gone=draw(st.integers(0, 5)) == 0,
                prepared=draw(st.booleans()),
            )
            member = replace(member, observation=told)
        if draw(st.integers(0, 4)) == 0:
            member = replace(member, unreachable_since=draw(st.floats(0, 100)))
        members.append(member)
    changed = replace(instance, members=tuple(members), status=draw(st.sampled_from(InstanceStatus)))
    return abandon(changed, draw(st.floats(0, 100))) if draw(st.integers(0, 4)) == 0 else changed


def verdict(instance: Instance, now: float, *, run_open: bool) -> Verdict | AskDirectly | None:
    return judge(instance, run_open, now, INSTANCE_SETTINGS)


@given(instances(), MOMENTS, st.floats(0, 1), st.booleans())
def test_until_the_next_appointment_time_changes_no_judgement(
    instance: Instance, now: float, part: float, run_open: bool
) -> None:
    at = changes_at(instance, now, INSTANCE_SETTINGS, ASSEMBLE_SEC)
    later = now + part * (at - now)
    assert verdict(instance, now, run_open=run_open) == verdict(instance, later, run_open=run_open)
    assert (now - instance.last_registration_at > ASSEMBLE_SEC) is (
        later - instance.last_registration_at > ASSEMBLE_SEC
    )


@given(instances(), MOMENTS)
def test_there_is_always_a_next_appointment(instance: Instance, now: float) -> None:
    assert now <= changes_at(instance, now, INSTANCE_SETTINGS, ASSEMBLE_SEC) < now + ASSEMBLE_SEC + 100


@given(instances(), st.data())
def test_an_observation_that_is_no_news_changes_neither_status_nor_need(
    instance: Instance, data: st.DataObject
) -> None:
    """Given that it has been judged as it stands, as every news is."""
    now = data.draw(st.floats(100, 110))
    if isinstance(judged := verdict(instance, now, run_open=False), Verdict):
        instance = transition(instance, judged, now)
    member = data.draw(st.sampled_from(instance.members))
    told = replace(
        member.observation or seen(instance, member.key, now),
        received_at=now,
        sequence=data.draw(st.integers(0, 2)),
        progress_age_sec=data.draw(st.none() | st.floats(0, 1000)),
        freeze_remaining_sec=data.draw(st.floats(0, 1000)),
    )
    if not is_no_news(instance, member.key, told, now, INSTANCE_SETTINGS):
        return
    heard = observe(instance, member.key, told)
    assert heard == heard_again(instance, member.key, told)
    after = verdict(heard, now, run_open=False)
    assert not isinstance(after, Verdict) or transition(heard, after, now).status is instance.status
    assert run_needed(heard, SETTINGS) == run_needed(instance, SETTINGS)
    assert waits_for(heard) == waits_for(instance)


def active(now: float = 0.0) -> Instance:
    return activate(serving(2, now=now), "", now)


class Differing(Told, total=False):
    epoch: int
    statuses: Mapping[int, EndpointStatus]


def repeated(instance: Instance, now: float, **told: Unpack[Differing]) -> bool:
    member = instance.members[0]
    assert member.observation is not None
    seen_now = replace(replace(member.observation, received_at=now, sequence=7), **told)
    return is_no_news(instance, member.key, seen_now, now, INSTANCE_SETTINGS)


def test_the_same_word_again_from_a_serving_instance_is_no_news() -> None:
    assert repeated(active(), 3.0)
    assert repeated(active(), 3.0, progress_age_sec=99.0, freeze_remaining_sec=5.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"normal": False},
        {"statuses": {0: EndpointStatus.ABNORMAL}},
        {"epoch": 5},
        {"boot_id": "another"},
        {"step": Step.STOPPING},
        {"run_id": "a run"},
        {"leaving": True},
        {"gone": True},
        {"drained": True},
        {"prepared": True},
    ],
)
def test_whatever_differs_is_news(changes: Differing) -> None:
    assert not repeated(active(), 3.0, **changes)


def test_the_first_word_is_news() -> None:
    instance = active()
    silent = replace(instance, members=tuple(replace(m, observation=None) for m in instance.members))
    key = silent.members[0].key
    assert not is_no_news(silent, key, seen(silent, key, 3.0), 3.0, INSTANCE_SETTINGS)


def test_who_is_heard_after_too_long_is_news() -> None:
    """C6: before, the instance was not allowed to become active."""
    assert not repeated(active(), INSTANCE_SETTINGS.fresh_sec + 0.1)


def test_who_was_asked_in_vain_is_news() -> None:
    instance = active()
    assert not repeated(unreachable(instance, instance.members[0].key, 2.0), 3.0)


def test_the_first_word_after_a_relaunch_was_given_up_is_news() -> None:
    assert not repeated(abandon(active(), 2.0), 3.0)


@pytest.mark.parametrize("status", [InstanceStatus.INITIAL, InstanceStatus.INACTIVE])
def test_every_word_of_who_does_not_serve_is_news(status: InstanceStatus) -> None:
    assert not repeated(replace(active(), status=status), 3.0)


def test_of_a_member_that_is_not_known_everything_is_news() -> None:
    instance = active()
    stranger = replace(instance.members[0].key, node="#9")
    told = Observation(received_at=3.0, epoch=4, boot_id=None, normal=True, statuses={})
    assert not is_no_news(instance, stranger, told, 3.0, INSTANCE_SETTINGS)


def test_every_limit_of_silence_is_an_appointment() -> None:
    """Freshness, the two time-outs of a heartbeat, the assembly; then once in a while for good measure."""
    found, now = [], 0.0
    for _ in range(5):
        now = changes_at(serving(2), now, INSTANCE_SETTINGS, ASSEMBLE_SEC) + 0.5
        found.append(now - 0.5)
    assert found == [9.0, 10.0, 300.0, ASSEMBLE_SEC, ASSEMBLE_SEC + 0.5 + LONGEST_SEC]
