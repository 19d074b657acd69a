"""What a modelled supervisor is at one moment, and the messages that say so: what `supervisor.engine.node_manager`,
`pod_engine` and `register_manager` make of the same operation and engine. Nothing changes here.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.simulation.engine import Engine
from supervisor import wire
from supervisor.engine.model.arbiter import Situation
from supervisor.engine.model.operation import Operation
from supervisor.engine.model.reports import DeathReport, Observation
from supervisor.engine.model.status import EngineFacts, Judgement, judge
from supervisor.wire import EndpointStatus, Step


@dataclass(frozen=True, slots=True)
class View:
    operation: Operation
    engine: Engine | None
    identity: wire.SupervisorIdentity
    rank: int
    dependencies_active: bool
    grace_sec: float
    now: float

    @property
    def prepared(self) -> bool:
        operation = self.operation
        if operation.step is Step.PREPARED:
            return True
        idle = operation.step in (Step.IDLE, Step.HELD) and not operation.ever_started
        return idle and self.dependencies_active

    @property
    def endpoint_id(self) -> int:
        return next(iter(self.operation.endpoint_ids), self.rank)

    def judgement(self) -> Judgement:
        engine = self.engine
        facts = EngineFacts(
            ready=engine is not None and engine.ready and engine.lives,
            unhealthy=engine.unhealthy if engine is not None else None,
            in_grace=engine is not None and self.now < engine.spawned_at + self.grace_sec,
            endpoint_id=self.endpoint_id,
        )
        return judge(self.operation, facts, self.now)

    def heartbeat(self, sequence: int) -> wire.HeartbeatMsg:
        operation, identity = self.operation, self.identity
        return wire.HeartbeatMsg(
            job_name=identity.job_name,
            ins_id=operation.instance_id if operation.ever_started else 0,
            ip=identity.pod_ip,
            status={str(self.endpoint_id): self.judgement().status},
            nm_port=identity.nm_port,
            pod_uid=identity.pod_uid,
            epoch=operation.epoch,
            term=operation.term,
            boot_id=operation.boot_id,
            sequence=sequence,
            freeze_remaining_sec=operation.freeze_remaining(self.now),
            prepared=self.prepared,
            step=operation.step,
            run_id=operation.run_id,
            progress_age_sec=self._progress_age_sec(),
            leaving=operation.leaving is not None,
        )

    def registration(self) -> wire.RegisterMsg | wire.ReregisterMsg:
        """Engines that run are to be taken over; else it begins anew."""
        operation, identity = self.operation, self.identity
        fields = {name: getattr(identity, name) for name in identity.__struct_fields__}
        placement = operation.placement
        if placement is not None and operation.ever_started:
            return wire.ReregisterMsg(
                **fields,
                instance_id=placement.instance_id,
                endpoints=placement.endpoints,
                node_rank=placement.node_rank,
                freeze_remaining_sec=operation.freeze_remaining(self.now),
            )
        held = operation.reason if operation.step is Step.HELD else None
        return wire.RegisterMsg(**fields, business_port=("8000",), mgmt_port=("8001",), held=held)

    def situation(self) -> Situation:
        judged = self.judgement()
        counted = (f"endpoint {self.endpoint_id}: {judged.counted}",) if judged.counted else ()
        return Situation(counted, self.operation.serial, self.operation.frozen(self.now))

    def observation(self) -> Observation:
        engine, operation = self.engine, self.operation
        return Observation(
            epoch=operation.epoch,
            endpoint_id=self.endpoint_id,
            step=operation.step,
            pid=engine.pid if engine is not None else None,
            dead=self.endpoint_id in operation.dead,
            unhealthy=engine.unhealthy if engine is not None else None,
            ever_normal=engine is not None and engine.ready,
            probe="canary",
            device_fault=operation.device_fault,
        )

    def fault_message(self, report: DeathReport) -> wire.SoftwareFaultMsg:
        identity, operation = self.identity, self.operation
        return wire.SoftwareFaultMsg(
            exception_type=report.exception_type,
            exception_message=report.message,
            engine_id=report.endpoint_id,
            engine_status=wire.EngineHealth.DEAD,
            pod_ip=identity.pod_ip,
            job_name=identity.job_name,
            instance_id=operation.instance_id,
            epoch=report.epoch,
            term=operation.term,
            boot_id=operation.boot_id,
            pid=report.pid,
            category=report.category,
        )

    def status(self) -> wire.NodeManagerStatus:
        operation, judged = self.operation, self.judgement()
        return wire.NodeManagerStatus(
            status=judged.status is EndpointStatus.NORMAL,
            instance_id=operation.instance_id,
            epoch=operation.epoch,
            boot_id=operation.boot_id,
            term=operation.term,
            freeze_remaining_sec=operation.freeze_remaining(self.now),
            operation=wire.OperationView(step=operation.step, since="", run_id=operation.run_id, epoch=operation.epoch),
            endpoints=(
                wire.EndpointView(
                    id=self.endpoint_id,
                    status=judged.status,
                    state=operation.step,
                    progress_age_sec=self._progress_age_sec(),
                ),
            ),
            prepared=self.prepared,
            leaving=operation.leaving is not None,
        )

    def _progress_age_sec(self) -> float | None:
        """An engine that loads shows progress all the time."""
        return 0.0 if self.engine is not None and self.engine.lives and not self.engine.ready else None
