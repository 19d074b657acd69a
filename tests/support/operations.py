"""One supervisor's engine operation in a test's hands: sends commands, feeds events, keeps what came out.

Every state is reached by the decisions themselves, never written down by hand, so that no test starts from a state
that cannot be.
"""

from __future__ import annotations

from typing import Any

from supervisor.engine.model import progress
from supervisor.engine.model.commands import Accepted, Command, Decision, decide
from supervisor.engine.model.fencing import Refused
from supervisor.engine.model.freeze import FreezeLimits
from supervisor.engine.model.operation import (
    Action,
    Operation,
    OperationSettings,
    PrepareEngines,
    Report,
    StartEngines,
)
from supervisor.wire import Action as Verb
from supervisor.wire import Endpoint, EngineRestartMsg, ErrorCode, Recovery, StartCmdMsg, Step, StopMsg

BOOT = "boot-1"
INSTANCE = 7
SETTINGS = OperationSettings(enabled=True, freeze=FreezeLimits(duration_sec=720.0, silence_sec=60.0))
SWITCHED_OFF = OperationSettings(enabled=False, freeze=SETTINGS.freeze)

STEPS = tuple(Step)
BUSY = (Step.STOPPING, Step.CLEANING, Step.PREPARED, Step.STARTING, Step.LOADING)


def placement(**fields: Any) -> StartCmdMsg:
    endpoint = Endpoint(id=0, ip="10.0.0.1", business_port="10000", mgmt_port="10000")
    defaults: dict[str, Any] = {
        "job_name": "job",
        "role": "union",
        "instance_id": INSTANCE,
        "endpoints": (endpoint,),
        "master_dp_ip": "10.0.0.1",
    }
    return StartCmdMsg(**defaults | fields)


def prepare(epoch: int | None, run_id: str | None, **fields: Any) -> EngineRestartMsg:
    return EngineRestartMsg(action=Verb.PREPARE, epoch=epoch, run_id=run_id, **fields)


def start(epoch: int | None, run_id: str | None, **fields: Any) -> EngineRestartMsg:
    return EngineRestartMsg(action=Verb.START, epoch=epoch, run_id=run_id, **fields)


def restart(epoch: int | None = None, run_id: str | None = None, **fields: Any) -> EngineRestartMsg:
    return EngineRestartMsg(action=Verb.RESTART, epoch=epoch, run_id=run_id, **fields)


def abort(run_id: str | None = None, **fields: Any) -> EngineRestartMsg:
    return EngineRestartMsg(action=Verb.ABORT, run_id=run_id, **fields)


def hold(epoch: int | None, run_id: str | None, **fields: Any) -> EngineRestartMsg:
    return EngineRestartMsg(action=Verb.HOLD, epoch=epoch, run_id=run_id, **fields)


def stop(**fields: Any) -> StopMsg:
    return StopMsg(**fields)


class Rig:
    """A supervisor's operation on a clock that only the test moves."""

    def __init__(self, settings: OperationSettings = SETTINGS, now: float = 1000.0) -> None:
        self.now = now
        self.settings = settings
        self.state = Operation(boot_id=BOOT, booted_at=now)
        self.actions: list[Action] = []
        """Everything that was to be done so far."""

    def send(self, command: Command) -> Decision:
        self.state, actions, decision = decide(self.state, command, self.settings, self.now)
        self.actions.extend(actions)
        return decision

    def accepted(self, command: Command) -> Accepted:
        decision = self.send(command)
        assert isinstance(decision, Accepted), decision
        return decision

    def refused(self, command: Command) -> ErrorCode:
        decision = self.send(command)
        assert isinstance(decision, Refused), decision
        return decision.code

    def feed(self, *events: progress.Event) -> None:
        for event in events:
            self.state, actions = progress.advance(self.state, event, self.settings, self.now)
            self.actions.extend(actions)

    def wait(self, seconds: float) -> None:
        """Time passes; the clock is looked at only once, at its end."""
        self.now += seconds
        self.feed(progress.Tick())

    # --- effects of the operation in progress ---------------------------------------------------------------------

    def stopped(self) -> None:
        self.feed(progress.Stopped(self.state.serial))

    def clean(self) -> None:
        self.feed(progress.Clean(self.state.serial))

    def spawned(self) -> None:
        self.feed(progress.Spawned(self.state.serial))

    def loaded(self) -> None:
        self.feed(progress.Loaded(self.state.serial))

    def broke(self, reason: str = "the port is taken") -> None:
        self.feed(progress.Broke(self.state.serial, reason))

    def died(self) -> None:
        self.feed(progress.EngineDied("killed by SIGKILL"))

    def report_accepted(self, recovery: Recovery = Recovery.ENGINE_RELAUNCH, run_id: str | None = None) -> None:
        self.feed(progress.ReportAccepted(self.state.epoch, recovery, run_id))

    def start_cold(self, epoch: int = 1) -> None:
        """Engines of `epoch` run."""
        self.accepted(placement(epoch=epoch))
        self.stopped()
        self.clean()
        self.spawned()
        self.loaded()

    # --- what came out ------------------------------------------------------------------------------------------

    def is_frozen(self) -> bool:
        """No property, which mypy would believe to be what it was last asserted to be."""
        return self.state.frozen(self.now)

    @property
    def prepares(self) -> list[PrepareEngines]:
        return [action for action in self.actions if isinstance(action, PrepareEngines)]

    @property
    def starts(self) -> list[StartEngines]:
        return [action for action in self.actions if isinstance(action, StartEngines)]

    @property
    def reports(self) -> list[Report]:
        return [action for action in self.actions if isinstance(action, Report)]


def rig_at(step: Step, settings: OperationSettings = SETTINGS) -> Rig:
    """Engines of epoch 1 ran, and run `run-2` has brought epoch 2 to `step`; IDLE: a fresh boot; DONE: epoch 1."""
    rig = Rig(settings)
    if step is Step.IDLE:
        return rig
    rig.start_cold()
    if step is Step.DONE:
        return rig
    rig.accepted(hold(2, "run-2") if step is Step.HELD else prepare(2, "run-2"))
    path = {
        Step.CLEANING: (rig.stopped,),
        Step.PREPARED: (rig.stopped, rig.clean),
        Step.ABORTED: (rig.stopped, rig.clean, lambda: rig.accepted(abort("run-2"))),
        Step.STARTING: (rig.stopped, rig.clean, lambda: rig.accepted(start(2, "run-2"))),
    }
    path[Step.HELD] = (rig.stopped,)
    path[Step.LOADING] = (*path[Step.STARTING], rig.spawned)
    path[Step.FAILED] = (*path[Step.LOADING], rig.broke)
    for go in path.get(step, ()):
        go()
    assert rig.state.step is step
    return rig
