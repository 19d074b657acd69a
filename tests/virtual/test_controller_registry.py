"""The registry alone: what comes late, twice or at the wrong moment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.budgets import KEPT as BUDGETS_KEPT
from controller.events import EventLog
from controller.model.assembly import Joined
from controller.model.budget import Budget, BudgetKey, spend_run
from controller.model.instance import InstanceStatus, activate
from controller.model.member import Member
from controller.model.selection import ENGINE_RELAUNCH
from controller.model.wanted import Wanted
from controller.policy import Policy
from controller.reception import Reception
from controller.registry import Registry
from controller.store.base import Loaded
from controller.store.memory import MemoryStore
from controller.terms import Terms
from supervisor.wire import EndpointStatus, RegisterMsg
from tests.unit.controller_gang import FAULT, SILENT, begun, registration, seen

SILENT_SEC = 11.0


def registry() -> Registry:
    return Registry(Policy(), EventLog(), Terms(MemoryStore(), 1), Loaded(term=1, next_instance_id=1))


def register(here: Registry, message: RegisterMsg, now: float) -> Joined:
    answer = Reception(here).register(message, now)
    assert isinstance(answer, Joined), answer
    return answer


async def asked_because_silent(here: Registry) -> Member:
    """Both have registered, and the second is being asked because it says nothing."""
    for index in (0, 1):
        joined = register(here, registration(index), 0.0)
    entry = here.of_key(joined.instance.key)
    assert entry is not None
    first = entry.instance.members[0]
    here.observe(entry, first.key, seen(entry.instance, first.key, SILENT_SEC), SILENT_SEC)
    (question,) = here.questions
    assert question.key == joined.member
    return question


@pytest.mark.parametrize("answered", ["not at all", "by the new life"])
async def test_an_answer_about_an_earlier_life_says_nothing_of_the_present_one(answered: str) -> None:
    here = registry()
    question = await asked_because_silent(here)
    instance = register(here, registration(1, boot_id="boot-1-2"), SILENT_SEC + 1).instance
    told = seen(instance, question.key, SILENT_SEC + 2) if answered == "by the new life" else SILENT
    here.answered_directly(question, told, SILENT_SEC + 2)
    newest = here.newest(question.key.instance)
    assert newest is not None
    member = newest.member(question.key)
    assert member is not None
    assert member.unreachable_since is None


async def test_who_was_heard_while_it_was_asked_can_be_reached() -> None:
    here = registry()
    question = await asked_because_silent(here)
    entry = here.of_key(question.key.instance)
    assert entry is not None
    here.observe(entry, question.key, seen(entry.instance, question.key, 12.0), 12.0)
    here.answered_directly(question, SILENT, 13.0)
    member = entry.instance.member(question.key)
    assert member is not None
    assert member.unreachable_since is None


async def test_a_run_that_waits_for_its_turn_lets_the_instance_only_go_out_of_routing() -> None:
    here = registry()
    entry = here.of_key(register(here, registration(0, nnodes=1), 0.0).instance.key)
    assert entry is not None
    entry.instance = activate(begun(entry.instance, 1), "normal", 0.0)
    here.open(entry, Wanted(ENGINE_RELAUNCH, FAULT), 1.0)
    member = entry.instance.members[0].key
    for status, expected in (
        (EndpointStatus.NORMAL, InstanceStatus.ACTIVE),
        (EndpointStatus.ABNORMAL, InstanceStatus.INACTIVE),
        (EndpointStatus.INITIAL, InstanceStatus.INACTIVE),
        (EndpointStatus.NORMAL, InstanceStatus.INACTIVE),
    ):
        here.observe(entry, member, seen(entry.instance, member, 2.0, status), 2.0)
        assert entry.instance.status is expected, status


async def test_only_budgets_that_were_spent_are_kept_and_not_without_limit() -> None:
    here = registry()
    instance = register(here, registration(0, nnodes=1), 0.0).instance
    here.budgets.put(spend_run(here.budgets.of(instance), "run-1"))
    assert here.budgets.of(instance).runs == 1
    for number in range(BUDGETS_KEPT - 1):
        here.budgets.put(Budget(BudgetKey(instance.key, f"sha256:{number}-before"), runs=1))
    assert here.budgets.of(instance).runs == 1
    here.budgets.put(Budget(BudgetKey(instance.key, "sha256:one-more"), runs=1))
    assert here.budgets.of(instance).runs == 0, "the oldest is forgotten"
    here.budgets.put(spend_run(here.budgets.of(instance), "run-1"))
    here.budgets.put(Budget(BudgetKey(instance.key, "sha256:x"), runs=1))
    here.budgets.put(Budget(BudgetKey(instance.key, "sha256:x")))
    for number in range(BUDGETS_KEPT - 1):
        here.budgets.put(Budget(BudgetKey(instance.key, f"sha256:{number}-after"), runs=1))
    assert here.budgets.of(instance).runs == 1, "a whole one takes no room"


async def test_no_id_is_given_twice_even_if_a_run_outlives_its_instance() -> None:
    here = registry()
    first = register(here, registration(0, nnodes=1), 0.0).instance
    entry = here.of_key(first.key)
    assert entry is not None
    entry.instance = replace(entry.instance, status=InstanceStatus.DELETED)  # its run still cleans up
    second = register(here, registration(0, nnodes=1, boot_id="boot-0-2"), 400.0).instance
    third = register(here, registration(0, nnodes=1, job_name="other"), 400.0).instance
    assert len({first.id, second.id, third.id}) == 3
