"""Which pods may be deleted, how many, and never twice; by tables, and by any order of what may happen."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubernetes.messages import PodObject, pod_of
from controller.model import assembly
from controller.model.assembly import Rejected
from controller.model.instance import Hold, Holder, Instance, InstanceStatus, observe, strand
from controller.model.kubernetes.deletion import Admitted, Verdict, admitted, is_wanted, judge, untouched, withdrawn
from controller.model.kubernetes.pods import Pod, PodRef, Pods, ref_of
from controller.model.member import Member
from controller.model.settings import FleetSettings, InstanceSettings
from tests.unit.controller_gang import registration, seen, serving

NOW = 10_000.0
FLEET, SETTINGS = FleetSettings(), InstanceSettings()


def ref(index: int, uid: str = "") -> PodRef:
    return PodRef("default", f"llama-{index}", uid or f"uid-{index}")


def _in_pod(member: Member, index: int, first: int) -> Member:
    return replace(member, pod_name=f"llama-{first + index}", pod_uid=f"uid-{first + index}")


def heard(instance: Instance, now: float) -> Instance:
    """By whoever is not stranded."""
    for member in instance.members:
        if not member.stranded:
            instance = observe(instance, member.key, seen(instance, member.key, now))
    return instance


def stranded(*indexes: int, size: int = 4, first: int = 0) -> Instance:
    """An instance that is INACTIVE, some of whose members did not come back."""
    served = serving(size)
    members = tuple(_in_pod(member, index, first) for index, member in enumerate(served.members))
    instance = replace(served, members=members, status=InstanceStatus.INACTIVE)
    return strand(instance, {members[index].key for index in indexes})


def shown(*instances: Instance) -> Pods:
    """All their pods, as a watch tells of them."""
    refs = (ref_of(member) for instance in instances for member in instance.members)
    return {(each.namespace, each.name): Pod(each, "42") for each in refs if each}


def allowed(*instances: Instance, before: tuple[Admitted, ...] = (), now: float = NOW) -> list[PodRef]:
    """In a fleet in which somebody is heard, all of whose pods are looked at."""
    fleet = [heard(each, now) for each in instances]
    return [each.ref for each in admitted(fleet, shown(*fleet), before, now, FLEET, SETTINGS)]


def wanted_still(ref: PodRef, *instances: Instance) -> bool:
    fleet = [heard(each, NOW) for each in instances]
    return is_wanted(fleet, shown(*fleet), ref, NOW, SETTINGS)


def test_when_all_are_silent_it_may_be_us_who_are_cut_off() -> None:
    assert admitted([stranded(1)], shown(stranded(1)), (), NOW, FLEET, SETTINGS) == ()
    assert allowed(stranded(0, 1, size=2)) == []
    assert allowed(stranded(0, size=1), serving(2)) == [ref(0)], "others are heard"


def test_who_is_stranded_and_silent_is_deleted_and_nobody_else() -> None:
    assert allowed(stranded()) == []
    assert allowed(stranded(1)) == [ref(1)]
    assert allowed(stranded(1), now=5.0) == [], "it was heard a moment ago"


@pytest.mark.parametrize(
    "instance",
    [
        replace(stranded(1), held=Hold(Holder.OPERATOR, "new cards")),
        replace(stranded(1), held=Hold(Holder.FLEET, "a shared cause")),
        replace(stranded(1), terminating="by an operator"),
    ],
    ids=["held by an operator", "held for the fleet", "being ended"],
)
def test_what_somebody_else_decides_about_is_theirs(instance: Instance) -> None:
    assert allowed(instance) == []


@pytest.mark.parametrize("status", [InstanceStatus.ACTIVE, InstanceStatus.DELETED])
def test_an_instance_that_serves_or_is_no_more_has_lost_nobody(status: InstanceStatus) -> None:
    assert allowed(replace(stranded(1), status=status)) == []


def test_a_member_in_no_pod_cannot_be_deleted() -> None:
    bare = stranded(1)
    members = tuple(replace(member, pod_uid=None) for member in bare.members)
    assert allowed(replace(bare, members=members)) == []


def test_two_at_least_and_a_fraction_of_a_large_fleet_at_a_time() -> None:
    assert allowed(stranded(0, 1, 2)) == [ref(0), ref(1)]
    assert len(allowed(stranded(*range(10), size=20))) == 6


def test_the_others_follow_when_the_window_has_passed() -> None:
    broken = stranded(0, 1, 2)
    first = admitted([heard(broken, NOW)], shown(broken), (), NOW, FLEET, SETTINGS)
    assert allowed(broken, before=first, now=NOW + 599) == [ref(0), ref(1)]
    assert allowed(broken, before=first, now=NOW + 601) == [ref(0), ref(1), ref(2)]


def test_what_came_to_nothing_may_be_tried_again() -> None:
    first = (Admitted(ref(1), NOW),)
    assert allowed(stranded(1), before=first, now=NOW + 1) == [ref(1)]
    assert allowed(stranded(1), before=withdrawn(first, ref(1))) == [ref(1)]


def test_it_is_asked_once_more_before_it_is_done() -> None:
    assert wanted_still(ref(1), stranded(1))
    assert not wanted_still(ref(1, "uid-of-the-next"), stranded(1))
    assert not wanted_still(ref(1), stranded(2))
    assert not wanted_still(ref(1), replace(stranded(1), held=Hold(Holder.OPERATOR, "")))


def test_before_it_is_done_somebody_must_be_heard_still() -> None:
    broken = stranded(1)
    assert not is_wanted([broken], shown(broken), ref(1), NOW, SETTINGS)
    assert wanted_still(ref(0), stranded(0, size=1), serving(2)), "others are heard"


def test_a_pod_whose_supervisor_came_back_and_may_not_join_is_not_deleted() -> None:
    """Refused or not, its container did restart."""
    broken = heard(stranded(1), NOW)
    again = registration(1, 4, boot_id="boot-1-2", config_digest="sha256:another", pod_uid="uid-1", pod_name="llama-1")
    answer = assembly.register(broken, again, now=NOW, new_id=3, settings=SETTINGS)
    assert isinstance(answer, Rejected)
    assert answer.instance is not None
    assert answer.superseded == broken.members[1].key
    assert allowed(answer.instance) == []
    assert not wanted_still(ref(1), answer.instance)


def test_a_pod_that_is_not_looked_at_is_not_deleted() -> None:
    broken = heard(stranded(1), NOW)
    others = {name: pod for name, pod in shown(broken).items() if pod.ref != ref(1)}
    next_of_its_name = {**others, ("default", "llama-1"): Pod(ref(1, "uid-of-the-next"), "43")}
    for pods in (others, next_of_its_name):
        assert admitted([broken], pods, (), NOW, FLEET, SETTINGS) == ()
        assert not is_wanted([broken], pods, ref(1), NOW, SETTINGS)


def test_a_pod_that_the_watch_has_lost_for_a_moment_is_not_admitted_twice() -> None:
    broken, first = heard(stranded(1), NOW), (Admitted(ref(1), NOW),)
    lost = admitted([broken], {}, first, NOW + 1000, FLEET, SETTINGS)
    assert admitted([broken], shown(broken), lost, NOW + 1001, FLEET, SETTINGS) == first


def test_who_was_not_touched_takes_nobodys_turn_and_has_none_again() -> None:
    broken = stranded(0, 1, 2)
    both = (Admitted(ref(0), NOW), Admitted(ref(1), NOW))
    assert allowed(broken, before=both, now=NOW + 1) == [ref(0), ref(1)]
    one_is_over = untouched(both, ref(0))
    assert allowed(broken, before=one_is_over, now=NOW + 1) == [ref(0), ref(1), ref(2)]
    assert allowed(stranded(0), before=one_is_over, now=NOW + 1000) == [ref(0)], "known still"
    assert ref(0) not in allowed(stranded(2), before=one_is_over, now=NOW + 1), "until it is stranded no more"


POD = Pod(ref(1), "42")


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (POD, Verdict.DELETE),
        (None, Verdict.OVER),
        (replace(POD, ref=ref(1, "uid-of-the-next")), Verdict.OVER),
        (replace(POD, is_being_deleted=True), Verdict.OVER),
        (replace(POD, is_restarting=True), Verdict.LATER),
        (replace(POD, is_restarting=True, is_being_deleted=True), Verdict.OVER),
    ],
)
def test_the_pod_itself_is_judged_last(found: Pod | None, verdict: Verdict) -> None:
    assert judge(found, ref(1)) is verdict


@pytest.mark.parametrize(
    ("state", "is_restarting"),
    [
        ('{"waiting": {"reason": "CrashLoopBackOff"}}', True),
        ('{"waiting": {}}', True),
        ('{"running": {}}', False),
        ("{}", False),
    ],
)
def test_a_container_that_waits_is_about_to_start_whether_or_not_a_reason_is_told(
    state: str, is_restarting: bool
) -> None:
    meta = '{"name": "llama-1", "namespace": "default", "uid": "uid-1", "resourceVersion": "42"}'
    told = f'{{"metadata": {meta}, "status": {{"containerStatuses": [{{"state": {state}}}]}}}}'
    assert pod_of(msgspec.json.decode(told, type=PodObject)).is_restarting is is_restarting


EIGHT = stranded(size=8)
STEP = st.tuples(st.sets(st.integers(0, 7)), st.booleans(), st.booleans(), st.floats(0, 400))
"""Who is stranded, whether it is held, whether it serves, how much later."""


def _at(step: tuple[set[int], bool, bool, float], now: float) -> Instance:
    indexes, is_held, is_active, _ = step
    status = InstanceStatus.ACTIVE if is_active else InstanceStatus.INACTIVE
    held = Hold(Holder.OPERATOR, "") if is_held else None
    changed = strand(replace(EIGHT, status=status, held=held), {EIGHT.members[index].key for index in indexes})
    return heard(changed, now)


@given(st.lists(STEP, max_size=20))
def test_whatever_happens_nobody_is_deleted_twice_and_never_too_many(
    steps: list[tuple[set[int], bool, bool, float]],
) -> None:
    known: tuple[Admitted, ...] = ()
    made: list[Admitted] = []
    now = NOW
    for step in steps:
        now += step[-1]
        instance = _at(step, now)
        after = admitted([instance], shown(instance), known, now, FLEET, SETTINGS)
        new = [each for each in after if each not in known]
        still = {PodRef("default", member.pod_name or "", member.pod_uid or "") for member in instance.members}
        asked = {member.pod_uid for member in instance.members if member.stranded}
        assert all(each.ref in still and each.ref.uid in asked for each in new)
        assert not new or (not instance.held and instance.status is InstanceStatus.INACTIVE)
        # One that stays stranded is never admitted again, whatever time passes.
        assert not {each.ref for each in new} & {each.ref for each in known}
        made += new
        window = [each for each in made if now - each.at < FLEET.window_sec]
        assert len(window) <= max(2, int(0.3 * len(instance.members)))
        assert len({each.ref for each in after}) == len(after)
        known = after
