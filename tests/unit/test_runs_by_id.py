"""A run is named by its id, or by how that begins: logs and people shorten it."""

from __future__ import annotations

import pytest

from controller.cli.relaunches import only
from supervisor import wire
from supervisor.shared.asking import CommandFailed


def run(id_: str) -> wire.RunView:
    return wire.RunView(id=id_, instance_id=1, epoch=1, reason="crash", outcome=None, phase=1, steps=(), supervisors=())


RUNS = (run("cff98370aa"), run("cff1000000"), run("0123456789"))


@pytest.mark.parametrize("beginning", ["cff98370", "cff98370aa", "cff9"])
def test_what_begins_one_id_alone_is_enough(beginning: str) -> None:
    assert only(beginning, RUNS) is RUNS[0]


def test_what_begins_several_is_refused_with_their_ids() -> None:
    with pytest.raises(CommandFailed, match="cff98370aa, cff1000000") as failed:
        only("cff", RUNS)
    assert failed.value.exit_code == 1


def test_what_begins_none_is_not_found() -> None:
    with pytest.raises(CommandFailed, match="no run has the id 77") as failed:
        only("77", RUNS)
    assert failed.value.exit_code == 4
