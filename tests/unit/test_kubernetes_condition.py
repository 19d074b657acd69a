"""The condition that pods carry: what it says of each state, and when it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model.instance import Hold, Holder, Instance, InstanceStatus, observe
from controller.model.kubernetes.condition import MESSAGE_SEC, Condition, Reason, Written, due_at, wanted
from tests.unit.controller_gang import assembled, seen, serving

ACTIVE = replace(serving(), status=InstanceStatus.ACTIVE, reason="all endpoints are normal")
INACTIVE = replace(ACTIVE, status=InstanceStatus.INACTIVE, reason="engine 1 is dead")
HELD = replace(INACTIVE, held=Hold(Holder.OPERATOR, "new cards"))
DRAINING = observe(INACTIVE, INACTIVE.members[0].key, seen(INACTIVE, INACTIVE.members[0].key, 1.0, leaving=True))


@pytest.mark.parametrize(
    ("instance", "under_recovery", "is_true", "reason", "words"),
    [
        (ACTIVE, False, True, Reason.ACTIVE, "all endpoints are normal"),
        (ACTIVE, True, True, Reason.ACTIVE, "all endpoints are normal"),
        (INACTIVE, False, False, Reason.INACTIVE, "engine 1 is dead"),
        (INACTIVE, True, False, Reason.RELAUNCHING, "engine 1 is dead"),
        (HELD, True, False, Reason.HELD, "engine 1 is dead"),
        (HELD, False, False, Reason.HELD, "held: new cards"),
        (DRAINING, False, False, Reason.DRAINING, "engine 1 is dead"),
        (assembled(), False, False, Reason.ASSEMBLING, "waits for the dependencies of"),
        (assembled(), True, False, Reason.ASSEMBLING, ""),
        (replace(ACTIVE, status=InstanceStatus.DELETED), False, False, Reason.DELETED, "all endpoints are normal"),
    ],
)
def test_what_it_says(instance: Instance, under_recovery: bool, is_true: bool, reason: Reason, words: str) -> None:
    told = wanted(instance, under_recovery)
    assert (told.is_true, told.reason) == (is_true, reason)
    assert told.message.startswith(words)


@given(st.sampled_from(InstanceStatus), st.booleans(), st.booleans())
def test_it_is_true_exactly_while_the_instance_is_active(
    status: InstanceStatus, under_recovery: bool, is_held: bool
) -> None:
    held = Hold(Holder.BUDGET, "why") if is_held else None
    told = wanted(replace(ACTIVE, status=status, held=held), under_recovery)
    assert told.is_true is (status is InstanceStatus.ACTIVE)


def test_a_change_of_state_is_written_at_once_and_other_words_seldom() -> None:
    now = 100.0
    stands = Written(Condition(True, Reason.ACTIVE, "well"), at=90.0)
    assert due_at(stands.condition, None, now) == now
    assert due_at(stands.condition, stands, now) is None
    assert due_at(Condition(False, Reason.INACTIVE, "ill"), stands, now) == now
    assert due_at(replace(stands.condition, message="very well"), stands, now) == 90.0 + MESSAGE_SEC
    assert due_at(replace(stands.condition, message="very well"), stands, 500.0) == 500.0


def test_its_message_is_not_longer_than_people_read() -> None:
    assert len(wanted(replace(ACTIVE, reason="x" * 9999), False).message) == 1024
