"""Who is another to its peers, and which decode instances follow a prefill that came back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.model import instance as instances
from controller.model.fault import FaultLevel
from controller.model.identity import announcement, endpoints, followers, forgotten, is_new, told
from controller.model.instance import Hold, Holder, Instance, InstanceStatus
from controller.model.member import InstanceKey
from controller.model.outcome import Ended, Failed, Interrupted, Recovered, Withdrawn
from controller.model.relaunch.run import Cause, RunReason
from controller.model.selection import Choices
from controller.model.settings import OnPrefillRelaunch, RelaunchSettings
from controller.model.wanted import follows_no_more, recovery_wanted
from supervisor.wire import ParallelConfig
from tests.unit.controller_gang import assembled, begun, joined, registration, serving

FOLLOWS = RelaunchSettings(on_prefill_relaunch=OnPrefillRelaunch.RELAUNCH_DECODE)
CHOICES = Choices(frozenset({"enable_engine_relaunch"}))
ACTIVE = InstanceStatus.ACTIVE


def active(role: str, name: str, epoch: int = 4, served: int = 4, model_name: str = "llama-70b") -> Instance:
    instance = serving(1, epoch=epoch, role=role, model_name=model_name)
    return replace(instance, key=InstanceKey("default", name), status=ACTIVE, served_epoch=served)


PREFILL = active("prefill", "prefill", epoch=5)
DECODE = active("decode", "decode")
OUTDATED = replace(DECODE, outdated="prefill serves in epoch 5")


def marked(*living: Instance, prefill: Instance = PREFILL, settings: RelaunchSettings = FOLLOWS) -> list[str]:
    return [instance.key.job_name for instance in followers(prefill, living, settings) if instance.outdated]


@pytest.mark.parametrize(
    "status, epoch, served, expected",
    [
        (ACTIVE, 1, 0, True),
        (ACTIVE, 5, 4, True),
        (ACTIVE, 4, 4, False),
        (InstanceStatus.INITIAL, 5, 4, False),
        (InstanceStatus.INACTIVE, 5, 4, False),
    ],
)
def test_an_instance_is_new_once_in_every_epoch_in_which_it_serves(
    status: InstanceStatus, epoch: int, served: int, expected: bool
) -> None:
    instance = replace(DECODE, status=status, epoch=epoch, served_epoch=served)
    assert is_new(instance) is expected
    assert not is_new(told(instance))


def test_what_is_told_names_the_epoch_that_is_void_if_there_was_one() -> None:
    assert announcement(PREFILL) == "prefill serves in epoch 5; what is remembered of epoch 4 is void"
    assert announcement(replace(PREFILL, served_epoch=0)) == "prefill serves in epoch 5"


def test_the_endpoints_that_are_told_are_those_that_serve() -> None:
    assert endpoints(serving(2)) == ("10.0.0.1:10000", "10.0.0.2:10000")
    assert endpoints(serving(2, one_server=True)) == ("10.0.0.1:10000",)
    assert endpoints(serving(2, parallel_config=ParallelConfig(dp_size=1))) == ("10.0.0.1:10000",)
    assert endpoints(serving(1, pod_ip="fd00::2")) == ("[fd00::2]:10000",)


def test_the_epoch_that_was_served_goes_on_per_key() -> None:
    deleted = replace(PREFILL, key=assembled(1).key, status=InstanceStatus.DELETED)
    assert joined(deleted, registration(0, 1, role="prefill")).served_epoch == 4


@pytest.mark.parametrize(
    "other, follows",
    [
        (DECODE, True),
        (replace(DECODE, status=InstanceStatus.INACTIVE), True),
        (replace(DECODE, key=InstanceKey("elsewhere", "decode")), False),
        (active("decode", "decode", model_name="other"), False),
        (active("union", "decode"), False),
        (active("prefill", "decode"), False),
        (replace(DECODE, held=Hold(Holder.OPERATOR, "for a look")), False),
        (instances.leave_epoch(DECODE, [member.key for member in DECODE.members]), False),
    ],
)
def test_the_decode_instances_follow_that_serve_the_same_model_and_have_engines(other: Instance, follows: bool) -> None:
    assert marked(other) == (["decode"] if follows else [])


@pytest.mark.parametrize("first", [replace(PREFILL, served_epoch=0), active("decode", "d", 5), active("union", "u", 5)])
def test_nobody_follows_on_a_first_start_or_on_anything_but_a_prefill(first: Instance) -> None:
    assert marked(DECODE, prefill=first) == []


@pytest.mark.parametrize("settings", [RelaunchSettings(), replace(FOLLOWS, enable_engine_relaunch=False)])
def test_nobody_follows_unless_it_is_asked_for(settings: RelaunchSettings) -> None:
    assert marked(DECODE, settings=settings) == []
    assert recovery_wanted(OUTDATED, settings, CHOICES) is None


def test_one_that_is_marked_wants_a_relaunch_that_says_who_and_why() -> None:
    (outdated,) = followers(PREFILL, [DECODE], FOLLOWS)
    wanted = recovery_wanted(outdated, FOLLOWS, CHOICES)
    assert wanted is not None
    assert (wanted.strategy, wanted.level, wanted.cause.reason) == ("engine_relaunch", FaultLevel.L2, RunReason.PEER)
    assert "prefill default/prefill serves in epoch 5" in wanted.cause.text
    assert "its epoch 4 (pd.on_prefill_relaunch)" in wanted.cause.text


@pytest.mark.parametrize(
    "instance",
    [
        replace(OUTDATED, status=InstanceStatus.INACTIVE),
        replace(OUTDATED, held=Hold(Holder.OPERATOR, "for a look")),
        begun(OUTDATED, 5),
        forgotten(OUTDATED),
    ],
)
def test_one_that_serves_nobody_or_has_other_engines_does_not_follow(instance: Instance) -> None:
    wanted = recovery_wanted(instance, FOLLOWS, CHOICES)
    assert wanted is None or wanted.cause.reason is RunReason.HOLD


@pytest.mark.parametrize(
    "reason, outcome, expected",
    [
        (RunReason.PEER, Failed("aborted"), True),
        (RunReason.PEER, Withdrawn("aborted"), True),
        (RunReason.PEER, Recovered("all serve"), False),
        (RunReason.PEER, Interrupted("the controller stops"), False),
        (RunReason.FAULT, Failed("aborted"), False),
    ],
)
def test_only_a_relaunch_for_a_peer_that_was_given_up_is_not_opened_again(
    reason: RunReason, outcome: Ended, expected: bool
) -> None:
    assert follows_no_more(Cause(reason, "a test"), outcome) is expected
