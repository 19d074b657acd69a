"""What is remembered of the operations of a pod's engines."""

from __future__ import annotations

from supervisor.engine.model.history import OPERATIONS_KEPT, History, noted
from supervisor.wire import Step
from tests.support.operations import Rig, prepare, start


def test_one_record_an_operation_as_far_as_it_got() -> None:
    rig, history = Rig(), History()

    def note(at: str) -> None:
        nonlocal history
        history = noted(history, rig.state, at)

    note("00")
    assert [*history.operations] == []
    rig.start_cold()
    note("01")
    rig.accepted(prepare(2, "run-2", reason="the engine died"))
    note("02")
    rig.stopped()
    rig.clean()
    rig.accepted(start(2, "run-2"))
    note("03")
    rig.broke("the port is taken")
    note("04")
    unchanged = history
    note("05")
    assert history is unchanged
    cold, relaunch = history.operations
    assert (cold.epoch, cold.step, cold.began_at) == (1, Step.DONE, "01")
    assert (relaunch.epoch, relaunch.run_id, relaunch.reason) == (2, "run-2", "the engine died")
    assert (relaunch.began_at, relaunch.since) == ("02", "04")
    assert (relaunch.step, relaunch.error) == (Step.FAILED, "the port is taken")


def test_it_is_bounded() -> None:
    history = History()
    for epoch in range(1, 100):
        rig = Rig()
        rig.start_cold(epoch)
        history = noted(history, rig.state, "")
    assert [record.epoch for record in history.operations] == list(range(100 - OPERATIONS_KEPT, 100))
