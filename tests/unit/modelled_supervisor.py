"""One supervisor as design 4 wants it, as small as it gets: what the plan of a run talks to in the property tests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from controller.model.member import Observation, all_normal
from controller.model.relaunch.exchange import Accepted, Answer, Probe, Refused
from supervisor.wire import EndpointStatus, EngineRestartMsg, ErrorCode, Step, StopMsg

Start = tuple[str | None, int | None]
"""Run and epoch."""


@dataclass
class ModelledSupervisor:
    rank: int
    epoch: int
    status: EndpointStatus
    boot: int = 1
    step: Step = Step.IDLE
    frozen: bool = False
    frozen_by: str | None = None
    """The run that did."""
    prepared_in: Start | None = None
    started_in: Start | None = None
    aborted: set[str] = field(default_factory=set)
    slow: bool = False
    """Its stop takes long: prepare answers with the step reached."""
    busy: bool = False
    alive: bool = True
    dependencies: bool = True
    """Of its engine, before the first start: they are active."""
    sequence: int = 0
    _run: Start | None = None

    @property
    def boot_id(self) -> str:
        return f"boot-{self.rank}-{self.boot}"

    def reboot(self) -> None:
        fresh = ModelledSupervisor(self.rank, 0, EndpointStatus.INITIAL, self.boot + 1, dependencies=False)
        self.__dict__.update(fresh.__dict__)

    def observation(self, now: float) -> Observation:
        statuses = {self.rank: self.status}
        self.sequence += 1
        return Observation(
            received_at=now,
            epoch=self.epoch,
            boot_id=self.boot_id,
            normal=all_normal(statuses),
            statuses=statuses,
            step=self.step,
            run_id=self._run[0] if self._run else None,
            prepared=self.step is Step.PREPARED or (self.step is Step.IDLE and self.dependencies),
            freeze_remaining_sec=60.0 if self.frozen else 0.0,
            sequence=self.sequence,
        )

    def handle(self, request: object, now: float) -> Answer:
        match request:
            case Probe():
                return replace(self.observation(now), sequence=0)
            case EngineRestartMsg(boot_id=boot) | StopMsg(boot_id=boot) if boot != self.boot_id:
                return self._refused(ErrorCode.WRONG_BOOT)
            case EngineRestartMsg(action="abort"):
                return self._abort(request)
            case StopMsg():
                self.frozen, self.frozen_by = False, None
                self.alive = False
                return self._accepted()
            case EngineRestartMsg():
                return self._command(request)
        raise AssertionError(request)

    def engine_loaded(self) -> None:
        if self.step is Step.LOADING:
            self.step, self.status = Step.DONE, EndpointStatus.NORMAL
            self.frozen, self.frozen_by = False, None

    def _command(self, request: EngineRestartMsg) -> Answer:
        assert request.run_id is not None
        if request.run_id in self.aborted:
            return self._refused(ErrorCode.ABORTED)
        if self.busy:
            return self._refused(ErrorCode.BUSY)
        meant = (request.run_id, request.epoch)
        if request.action == "prepare":
            return self._prepare(meant)
        if self.prepared_in != meant:
            return self._refused(ErrorCode.NOT_PREPARED)
        if self.started_in != meant:
            self.started_in, self.step, self.status = meant, Step.LOADING, EndpointStatus.INITIAL
        return self._accepted()

    def _prepare(self, meant: Start) -> Answer:
        if meant != self._run:
            if (meant[1] or 0) <= self.epoch:
                return self._refused(ErrorCode.STALE_EPOCH)
            self._run, self.epoch = meant, meant[1] or 0
            self.frozen, self.frozen_by = True, meant[0]
            self.step, self.status = Step.STOPPING, EndpointStatus.WAIT2START
        if self.step is Step.STOPPING and not self.slow:
            self.step, self.prepared_in = Step.PREPARED, meant
        return self._accepted()

    def _abort(self, request: EngineRestartMsg) -> Answer:
        self.aborted.add(request.run_id or "")
        ends = self.step in (Step.PREPARED, Step.STOPPING) or self.status is EndpointStatus.ABNORMAL
        self.frozen, self.frozen_by = False, None
        return replace(self._accepted(), will_exit=ends)

    def _accepted(self) -> Accepted:
        return Accepted(self.step, self.epoch, self.boot_id)

    def _refused(self, code: ErrorCode) -> Refused:
        return Refused(code, "as modelled", epoch=self.epoch, boot_id=self.boot_id)
