"""How relaunches are counted: each one once, by how it ended here; a cold start is none."""

from __future__ import annotations

from supervisor.engine.model.operation import Operation
from supervisor.pod_metrics import PodMetrics
from supervisor.shared.durations import STEP_BUCKETS_SEC, Durations
from supervisor.wire import Step
from tests.support.operations import Rig, abort, placement, prepare, start


class Counted:
    """An operation whose every move is told to the metrics."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.metrics = PodMetrics("default", "job")
        self._seen: Operation = self.rig.state

    def move(self, what: str, *arguments: object) -> None:
        getattr(self.rig, what)(*arguments)
        self.metrics.operation_moved(self._seen, self.rig.state, ())
        self._seen = self.rig.state
        self.rig.now += 2.0

    def cold_start(self) -> None:
        self.move("accepted", prepare(1, "cold", start=placement(epoch=1)))
        for what in ("stopped", "clean"):
            self.move(what)
        self.move("accepted", start(1, "cold"))
        for what in ("spawned", "loaded"):
            self.move(what)


def test_a_cold_start_is_no_relaunch() -> None:
    counted = Counted()
    counted.cold_start()
    assert counted.rig.state.step is Step.DONE
    assert not counted.metrics.relaunches
    assert not counted.metrics.steps


def test_a_relaunch_is_counted_with_its_steps() -> None:
    counted = Counted()
    counted.cold_start()
    counted.move("accepted", prepare(2, "run"))
    counted.move("stopped")
    counted.move("clean")
    counted.move("accepted", start(2, "run"))
    counted.move("spawned")
    counted.move("loaded")
    assert counted.metrics.relaunches == {"done": 1}
    steps = {step: (durations.sum, sum(durations.counts)) for step, durations in counted.metrics.steps.items()}
    assert steps == dict.fromkeys((Step.STOPPING, Step.CLEANING, Step.PREPARED, Step.STARTING, Step.LOADING), (2.0, 1))


def test_one_that_breaks_one_that_is_given_up_and_one_that_is_overtaken() -> None:
    counted = Counted()
    counted.cold_start()
    counted.move("accepted", prepare(2, "run-2"))
    counted.move("broke")
    assert counted.metrics.relaunches == {"failed": 1}
    counted.move("accepted", prepare(3, "run-3"))
    counted.move("stopped")
    counted.move("clean")
    counted.move("accepted", abort("run-3"))
    assert counted.metrics.relaunches == {"failed": 1, "aborted": 1}
    counted.move("accepted", prepare(4, "run-4"))
    counted.move("accepted", prepare(5, "run-5"))
    assert counted.metrics.relaunches == {"failed": 1, "aborted": 1, "obsolete": 1}
    for what in ("stopped", "clean"):
        counted.move(what)
    counted.move("accepted", start(5, "run-5"))
    counted.move("loaded")
    assert counted.metrics.relaunches == {"failed": 1, "aborted": 1, "obsolete": 1, "done": 1}


def test_durations_fall_into_their_buckets() -> None:
    durations = Durations()
    for seconds in (0.1, 0.11, 10_000.0):
        durations.add(seconds)
    assert (durations.counts[0], durations.counts[1], durations.counts[len(STEP_BUCKETS_SEC)]) == (1, 1, 1)
