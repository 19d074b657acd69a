"""An engine that is green and dies of its first request: the relaunches end, and do not go round."""

import pytest

from controller.demo.tiny_model import Shape
from supervisor import wire
from tests.engines.vllm.gang import ENGINE, LOAD_SEC, Stage, report
from tests.pods.harness import Tables, eventually
from tests.pods.stage import STAYS

pytestmark = [pytest.mark.pods, pytest.mark.vllm, pytest.mark.timeout(3600)]

# vLLM's attention for CPUs wants heads of 32 and more, and finds out when it is asked.
HEADS_OF_16 = Shape(heads=4)
ATTEMPTS = 2
BACK_OFF_SEC = 5.0
SMALL_BUDGET: Tables = {
    "fault_tolerance_config": {
        "engine_relaunch_poll_interval_sec": 0.2,
        "engine_relaunch_max_attempts": ATTEMPTS,
        "engine_relaunch_backoff_sec": BACK_OFF_SEC,
        "max_phase2_fraction": 1,
    }
}
ASKED_SOON = '[Canary]\nIdleSec = "1s"\n'


async def test_a_model_that_kills_its_engine_ends_in_back_off_phase_2_and_at_last_held(stage: Stage) -> None:
    """The canary is the first to ask."""
    async with stage.gang(1, shape=HEADS_OF_16, drop_in=ASKED_SOON, controller_settings=SMALL_BUDGET) as gang:

        def is_over(found: tuple[wire.RunView, ...]) -> bool:
            return any(run.outcome == "held" for run in found)

        runs = await eventually(gang.runs, is_over, "held", timeout_sec=10 * LOAD_SEC, poll_sec=1.0)
        for run in runs:
            report(f"epoch {run.epoch}: {run.reason}, {run.outcome}, phase {run.phase}: {run.message}")
        ends = [(run.reason, run.outcome) for run in runs]
        assert ends[0] == ("assemble", "done")
        assert ends[-1] == ("assemble", "held")
        in_place = [run for run in runs if run.reason == "fault" and run.outcome == "done"]
        assert len(in_place) == ATTEMPTS
        assert any(step.name == "backoff" for step in in_place[-1].steps)
        assert [run.phase for run in runs if run.outcome == "phase2"] == [2] * ATTEMPTS
        assert gang.running.supervisors[0].exit_codes == [255] * ATTEMPTS

        idle = await gang.look()
        assert idle.units[0][ENGINE] is None
        assert all(idle.units[0][name] for name in STAYS)
        instance = await gang.instance()
        assert instance is not None
        assert instance.held_by == "budget"
