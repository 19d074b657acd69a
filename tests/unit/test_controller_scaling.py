"""How far an instance is scaled down for a lost device, and who gives way to a decode instance."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model import devices
from controller.model.fault import Fault, FaultIdentity, FaultLevel
from controller.model.instance import Instance, InstanceStatus
from controller.model.member import InstanceKey
from controller.model.scaling import given_up_for, new_size
from supervisor.wire import FaultCategory, ParallelConfig
from tests.unit.controller_gang import serving


def gang(dp_size: int = 8, nnodes: int = 4) -> Instance:
    return serving(nnodes, role="decode", parallel_config=ParallelConfig(dp_size=dp_size))


def sick(instance: Instance, *indexes: int) -> Instance:
    for index in indexes:
        identity = FaultIdentity(instance.members[index].key, device="0", code=1)
        instance = devices.present(instance, Fault(identity, FaultLevel.L4, FaultCategory.HARDWARE, 1, "lost"))
    return instance


@pytest.mark.parametrize(
    "lost, scaled_to, expected",
    [((3,), None, 6), ((2,), None, 4), ((1, 3), None, 2), ((3,), 6, "6 ranks already"), ((2, 3), 6, 4)],
)
def test_everything_from_the_lowest_sick_rank_on_goes(
    lost: tuple[int, ...], scaled_to: int | None, expected: int | str
) -> None:
    size = new_size(replace(sick(gang(), *lost), scaled_to=scaled_to))
    assert size == expected or (isinstance(expected, str) and expected in str(size))


def test_without_a_sick_device_it_grows_back_to_what_was_declared() -> None:
    assert new_size(replace(gang(), scaled_to=4)) == 8


def test_rank_0_cannot_be_taken_away_and_one_rank_cannot_be_shared() -> None:
    assert "rank 0" in str(new_size(sick(gang(), 0, 3)))
    assert "one data-parallel rank" in str(new_size(sick(gang(dp_size=1), 3)))


def prefill(
    number: int, nodes: int = 1, status: InstanceStatus = InstanceStatus.ACTIVE, model: str = "llama-70b"
) -> Instance:
    instance = serving(nodes, role="prefill", model_name=model)
    return replace(instance, id=number, key=InstanceKey("default", f"prefill-{number}"), status=status)


def ids(chosen: tuple[Instance, ...] | str) -> list[int] | str:
    return chosen if isinstance(chosen, str) else [instance.id for instance in chosen]


DECODE = sick(gang(nnodes=2), 1)


def test_the_idle_before_the_small_before_the_new() -> None:
    idle = prefill(1, 4, InstanceStatus.INACTIVE)
    big, small, new = prefill(2, 2), prefill(3), prefill(4)
    assert ids(given_up_for(DECODE, [idle, big, small, new])) == [1]
    assert ids(given_up_for(DECODE, [big, small, new])) == [4]
    assert ids(given_up_for(sick(DECODE, 0), [big, small, new])) == [4, 3]


def test_one_is_always_kept() -> None:
    assert "one has to stay" in str(given_up_for(DECODE, [prefill(1)]))
    assert "one has to stay" in str(given_up_for(DECODE, [prefill(1, 1, InstanceStatus.INITIAL)]))
    assert "0 prefill instances" in str(given_up_for(DECODE, []))


def test_only_its_own_model_s_prefill_instances_give_way() -> None:
    strangers = [prefill(1, model="other"), prefill(2, model="other")]
    elsewhere = [
        replace(prefill(3), key=InstanceKey("elsewhere", "p")),
        replace(prefill(4), key=InstanceKey("elsewhere", "q")),
    ]
    unions = [replace(serving(1), id=5), replace(serving(1), id=6)]
    assert isinstance(given_up_for(DECODE, [*strangers, *elsewhere, *unions]), str)


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(InstanceStatus)), max_size=8), st.integers(1, 2))
def test_whatever_there_is_one_that_serves_stays_and_no_more_goes_than_is_needed(
    shapes: list[tuple[int, InstanceStatus]], lost: int
) -> None:
    living = [prefill(number, nodes, status) for number, (nodes, status) in enumerate(shapes)]
    chosen = given_up_for(sick(DECODE, *range(lost)), living)
    if isinstance(chosen, str):
        return
    left = [instance for instance in living if instance not in chosen]
    assert left
    if any(instance.status is InstanceStatus.ACTIVE for instance in living):
        assert any(instance.status is InstanceStatus.ACTIVE for instance in left)
    assert sum(len(instance.members) for instance in chosen[:-1]) < 2
