"""What the actions of a run leave behind, action by action."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.model.instance import Hold, Holder, InstanceStatus, observe
from controller.model.relaunch.effects import changed, undelivered
from controller.model.relaunch.exchange import (
    Accepted,
    ConfigurationTaken,
    Emit,
    EpochAbandoned,
    EpochBegins,
    EpochLeft,
    InstanceHeld,
    InstanceInactive,
    Level,
    MembersStranded,
    Probe,
    Request,
    Send,
    Silence,
    Unreachable,
)
from supervisor import wire
from tests.unit.controller_gang import joined, registration, seen, serving

NOW = 500.0
ABORT = wire.EngineRestartMsg(action=wire.Action.ABORT, term=4, run_id="r1", boot_id="b1")
PREPARE = wire.EngineRestartMsg(action=wire.Action.PREPARE, term=4, run_id="r1", boot_id="b1")
STOP = wire.StopMsg(term=4, run_id="r1", boot_id="b1", reason="over")
NOT_THERE = Unreachable(Silence.SILENT, "no answer")
INSTANCE = serving(epoch=4)
FIRST = INSTANCE.members[0].key
LIVES = {member.key: member.boot_id for member in INSTANCE.members}
HELD = Hold(Holder.OPERATOR, "new cards")


def test_each_action_changes_what_it_names_and_nothing_else() -> None:
    since, inactive = replace(INSTANCE, status=InstanceStatus.ACTIVE), InstanceStatus.INACTIVE
    assert changed(since, InstanceInactive("why"), NOW) == replace(since, status=inactive, since=NOW, reason="why")
    assert (begun := changed(INSTANCE, EpochBegins(5, LIVES, ""), NOW)) == replace(INSTANCE, epoch=5, highest_epoch=5)
    assert changed(begun, EpochAbandoned(""), NOW) == replace(begun, abandoned_epoch=5, abandoned_at=NOW)
    taken = ConfigurationTaken("d2", INSTANCE.spec, "")
    assert changed(INSTANCE, taken, NOW).spec == replace(INSTANCE.spec, config_digest="d2")
    assert changed(INSTANCE, InstanceHeld(HELD), NOW) == replace(INSTANCE, held=HELD)
    left = changed(INSTANCE, EpochLeft(frozenset({FIRST}), ""), NOW)
    assert [member.in_epoch for member in left.members] == [False, True]
    stranded = changed(INSTANCE, MembersStranded(frozenset({FIRST}), ""), NOW)
    assert [member.stranded for member in stranded.members] == [True, False]


def test_what_a_run_began_says_nothing_of_a_life_that_has_joined_since() -> None:
    reborn = joined(INSTANCE, registration(0, boot_id="boot-0-2"), NOW)
    begun = changed(reborn, EpochBegins(5, LIVES, ""), NOW)
    assert (begun.epoch, [member.in_epoch for member in begun.members]) == (5, [False, True])


def test_a_gang_that_has_started_over_keeps_its_own_configuration() -> None:
    over = replace(INSTANCE, spec=replace(INSTANCE.spec, nnodes=3, config_digest="d3"))
    assert changed(over, ConfigurationTaken("d2", INSTANCE.spec, ""), NOW) == over


def test_a_stranded_member_is_none_any_more_once_it_is_heard_or_lives_anew() -> None:
    stranded = changed(INSTANCE, MembersStranded(frozenset({FIRST}), ""), NOW)
    heard = observe(stranded, FIRST, seen(stranded, FIRST, NOW))
    assert not any(member.stranded for member in heard.members)
    reborn = joined(stranded, registration(0, boot_id="boot-0-2"), NOW)
    assert not any(member.stranded for member in reborn.members)


def test_what_is_only_for_people_changes_nothing() -> None:
    assert changed(INSTANCE, Emit(Level.ERROR, "look"), NOW) is INSTANCE


@pytest.mark.parametrize(("request_", "kind"), [(ABORT, wire.OrderKind.ABORT), (STOP, wire.OrderKind.LEAVE)])
def test_a_farewell_to_who_cannot_be_reached_becomes_an_order(request_: Request, kind: wire.OrderKind) -> None:
    send = Send(FIRST, 1, request_, 3.0, "the run is over")
    expected = wire.Order(order=kind, term=4, run_id="r1", boot_id="b1", reason="the run is over")
    assert undelivered(send, NOT_THERE) == expected
    assert undelivered(send, Accepted(wire.Step.IDLE)) is None


@pytest.mark.parametrize("request_", [PREPARE, Probe("r1")])
def test_nothing_else_is_worth_an_order(request_: Request) -> None:
    assert undelivered(Send(FIRST, 1, request_, 3.0, "why"), NOT_THERE) is None
