"""The plan of the chaos program: a seed is a whole story, and everything on the stage can be hit."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.faults import KINDS, Cut, Fault, Stage, Strike, kind_of
from tests.chaos.plan import TOGETHER, plan

NAMES = tuple(f"pod{number}" for number in range(6))
stages = st.builds(
    Stage,
    gangs=st.sampled_from([(NAMES[:3], NAMES[3:]), (NAMES[:2],), (NAMES[:1], NAMES[1:4])]),
    controllers=st.sampled_from([("controller0",), ("controller0", "controller1")]),
    etcd=st.sampled_from([None, "etcd"]),
    missing=st.frozensets(st.sampled_from(KINDS), max_size=len(KINDS) - 1),
)
seeds = st.integers(0, 1 << 64)


def faults_of(strikes: tuple[Strike, ...]) -> list[Fault]:
    return [timed.fault for strike in strikes for timed in strike.faults]


@given(stage=stages, seed=seeds, count=st.integers(0, 60), longest_sec=st.floats(0.2, 60))
def test_a_plan_has_the_faults_that_were_ordered_and_hits_only_what_is_there(
    stage: Stage, seed: int, count: int, longest_sec: float
) -> None:
    strikes = plan(stage, seed, count, longest_sec=longest_sec)
    faults = faults_of(strikes)
    assert len(faults) == count
    assert [strike.number for strike in strikes] == list(range(len(strikes)))
    assert all(1 <= len(strike.faults) <= max(TOGETHER) for strike in strikes)
    there = {*stage.pods, *stage.centre}
    for fault in faults:
        assert kind_of(fault) not in stage.missing
        assert fault.pod in there
        assert not isinstance(fault, Cut) or (fault.peer in there and fault.peer != fault.pod)
        assert getattr(fault, "lasting_sec", 0) <= longest_sec + 0.01


@given(stage=stages, seed=seeds)
def test_the_same_seed_tells_the_same_story_and_a_file_can_hold_it(stage: Stage, seed: int) -> None:
    strikes = plan(stage, seed, 20, longest_sec=2)
    assert strikes == plan(stage, seed, 20, longest_sec=2)
    assert msgspec.json.decode(msgspec.json.encode(strikes), type=tuple[Strike, ...]) == strikes


def test_other_seeds_tell_other_stories() -> None:
    stage = Stage((NAMES[:3], NAMES[3:]), ("controller0",))
    assert len({plan(stage, seed, 10, longest_sec=2) for seed in range(50)}) == 50


@pytest.mark.parametrize("etcd", [None, "etcd"])
def test_every_kind_and_everybody_is_hit_in_the_long_run(etcd: str | None) -> None:
    stage = Stage((NAMES[:3], NAMES[3:]), ("controller0", "controller1"), etcd)
    faults = faults_of(plan(stage, 1, 1000, longest_sec=2))
    assert {kind_of(fault) for fault in faults} == set(KINDS)
    assert {fault.pod for fault in faults} == {*stage.pods, *stage.centre}


@pytest.mark.parametrize("kind", KINDS)
def test_one_kind_alone_can_be_ordered(kind: str) -> None:
    stage = Stage((NAMES[:3], NAMES[3:]), ("controller0",))
    assert {kind_of(fault) for fault in faults_of(plan(stage, 7, 12, longest_sec=2, only=kind))} == {kind}


@pytest.mark.parametrize("kind", ["earthquake", "cut"])
def test_a_kind_that_there_is_not_is_refused_with_those_that_there_are(kind: str) -> None:
    stage = Stage((NAMES[:3],), ("controller0",), missing=frozenset({"cut"}))
    with pytest.raises(ValueError, match=f"no faults of kind '{kind}' here; there are kill, freeze, unplug"):
        plan(stage, 1, 1, longest_sec=1, only=kind)


@given(stage=stages, seed=seeds, together=st.integers(1, 9))
def test_a_storm_has_as_many_at_a_time_as_were_ordered(stage: Stage, seed: int, together: int) -> None:
    sizes = [len(strike.faults) for strike in plan(stage, seed, 30, longest_sec=2, together=together)]
    assert sum(sizes) == 30
    assert set(sizes[:-1]) <= {together}
