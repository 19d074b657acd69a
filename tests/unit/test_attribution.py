"""Whose process is this: by table, and for any forest of processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.process.attribution import Found, Marks, Surroundings, all_below, certainly_not_newborn, find_members
from supervisor.process.procfs import ProcessStat

US = 1
OUR_SESSION = 1
LEADER = 10
OTHER_LEADER = 20
AROUND = Surroundings(US, OUR_SESSION, frozenset({LEADER, OTHER_LEADER}), newborn_ticks=1000)
BY_ID = Marks(LEADER, frozenset({"mine"}))
CLAIMING = Marks(LEADER, frozenset({"mine"}), claims_unowned_since=100)


def stat(pid: int, parent: int, session: int = 99, state: str = "S", started: int = 500) -> ProcessStat:
    return ProcessStat(pid, f"p{pid}", state, parent, session, session, 1, started)


def pids(found: Found) -> set[int]:
    return {member.pid for member in found.members}


def find(marks: Marks, *stats: ProcessStat, ids: dict[int, str] | None = None, around: Surroundings = AROUND) -> Found:
    return find_members({one.pid: one for one in stats}, marks, around, (ids or {}).get)


TREE = (stat(US, 0, 1), stat(LEADER, US, LEADER), stat(11, LEADER, LEADER), stat(OTHER_LEADER, US, OTHER_LEADER))


def test_what_is_below_the_leader_is_the_units_whatever_its_session() -> None:
    assert pids(find(BY_ID, *TREE, stat(12, 11, 12))) == {LEADER, 11, 12}


def test_zombies_are_no_members_but_what_is_below_them_is() -> None:
    zombies = (stat(LEADER, US, LEADER, "Z"), stat(11, LEADER, 11, "Z"))
    assert pids(find(BY_ID, stat(US, 0, 1), *zombies, stat(12, 11, 12))) == {12}


@pytest.mark.parametrize(
    "marks, orphan, ids, expected",
    [
        (BY_ID, stat(30, US, LEADER), {}, {30, 31}),  # in the session of the leader, whose number is pinned
        (BY_ID, stat(30, US, 30), {30: "mine"}, {30, 31}),
        (BY_ID, stat(30, US, 30), {31: "mine"}, {31}),  # what is above the proven one is not proven by it
        (BY_ID, stat(30, US, 30), {30: "theirs"}, set()),
        (BY_ID, stat(30, US, 30), {}, set()),
        (BY_ID, stat(30, 7, 30), {30: "mine"}, set()),  # no descendant of ours
        (Marks(None, frozenset({"mine"})), stat(30, US, LEADER), {}, set()),  # the number means nothing any more
        (Marks(LEADER, frozenset(), frozenset({(30, 500)})), stat(30, US, 30), {}, {30, 31}),
        (Marks(LEADER, frozenset(), frozenset({(30, 499)})), stat(30, US, 30), {}, set()),  # the number again, not it
        (CLAIMING, stat(30, US, 30), {}, {30, 31}),
        (CLAIMING, stat(30, US, 30), {30: "theirs"}, set()),
        (CLAIMING, stat(30, US, 30, started=99), {}, set()),  # older than the unit's main process
    ],
)
def test_an_adopted_orphan(marks: Marks, orphan: ProcessStat, ids: dict[int, str], expected: set[int]) -> None:
    assert pids(find(marks, stat(US, 0, 1), orphan, stat(31, 30, 31), ids=ids)) == expected


def test_another_units_process_is_left_alone_even_with_our_mark() -> None:
    assert pids(find(CLAIMING, *TREE, ids={OTHER_LEADER: "mine"})) == {LEADER, 11}


@pytest.mark.parametrize("session, claimed", [(30, False), (OUR_SESSION, False), (77, True)])
def test_what_may_be_a_newborn_is_not_claimed_but_looked_at_again(session: int, claimed: bool) -> None:
    found = find(CLAIMING, stat(US, 0, 1), stat(30, US, session, started=1000))
    assert found == Found((stat(30, US, session, started=1000),) if claimed else (), in_doubt=not claimed)


def test_all_below_is_without_the_top_and_without_zombies() -> None:
    stats = {one.pid: one for one in (*TREE, stat(12, 11), stat(13, 12, state="Z"))}
    assert {one.pid for one in all_below(LEADER, stats)} == {11, 12}
    assert all_below(4711, stats) == ()


forests = st.lists(
    st.builds(
        stat,
        pid=st.integers(2, 12),
        parent=st.integers(0, 12),
        session=st.integers(1, 12),
        state=st.sampled_from("SRDZT"),
        started=st.sampled_from((50, 500, 1500)),
    ),
    max_size=14,
    unique_by=lambda one: one.pid,
)


@given(
    forest=forests,
    our_parent=st.integers(0, 12),
    ids=st.dictionaries(st.integers(2, 12), st.sampled_from(("mine", "theirs"))),
    claims=st.none() | st.just(100),
    newborn_ticks=st.sampled_from((0, 1000)),
)
def test_in_any_forest_only_descendants_that_nobody_else_owns_are_found(
    forest: list[ProcessStat],
    our_parent: int,
    ids: dict[int, str],
    claims: int | None,
    newborn_ticks: int,
) -> None:
    stats = {one.pid: one for one in (stat(US, our_parent, 1), *forest)}
    around = Surroundings(US, OUR_SESSION, frozenset({2, 3}), newborn_ticks)
    found = find_members(stats, Marks(2, frozenset({"mine"}), claims_unowned_since=claims), around, ids.get)

    below_us = {one.pid for one in all_below(US, stats)}
    assert US not in pids(found)
    others = {one.pid: one for one in forest}  # a torn look may show a circle through us: we are nobody's descendant
    below_theirs = {3, *(one.pid for one in all_below(3, others))}
    assert pids(found) <= below_us
    assert not pids(found) & (below_theirs if 3 in below_us and stats[3].parent == US else set())
    assert all(member.alive for member in found.members)
    if 2 in stats and stats[2].parent == US:
        assert {one.pid for one in all_below(2, others)} <= pids(found)
    for member in found.members:
        chain = _up_to_us(member, stats)
        top = chain[-1]
        if top.pid != 2:
            proven = any(one.session == 2 or ids.get(one.pid) == "mine" for one in chain)
            claimed = claims is not None and top.started_ticks >= claims and top.pid not in ids
            assert proven or (claimed and certainly_not_newborn(top, OUR_SESSION, newborn_ticks))


def _up_to_us(member: ProcessStat, stats: dict[int, ProcessStat]) -> list[ProcessStat]:
    chain = [member]
    while chain[-1].parent != US:
        chain.append(stats[chain[-1].parent])
    return chain


def test_what_lives_in_the_units_cgroup_is_the_units_and_zombies_are_not() -> None:
    others = (stat(30, US, 30), stat(31, US, 31, "Z"))
    scanned = {one.pid: one for one in (*TREE, *others)}
    found = find_members(scanned, BY_ID, AROUND, lambda _: None, in_cgroup=(30, 31, 32))
    assert pids(found) == {LEADER, 11, 30}
