"""This pod's engine: its service seen as an endpoint, and what can be done to it for the operator.

The launch parameters come from the placement (seed S18); only this one unit is ever touched (seed S26). What the
operation's state makes of what is seen here stands in `model/status.py`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

import msgspec
import trio
from msgspec.structs import replace

from supervisor import wire
from supervisor.engine.launchers import LaunchPlan, plan_launch, rank_of
from supervisor.engine.model import placement as placements
from supervisor.engine.model import progress
from supervisor.engine.model.banner import banner
from supervisor.engine.model.operation import Operation
from supervisor.engine.model.reports import DeathReport, Observation
from supervisor.engine.model.status import EngineFacts
from supervisor.engine.operator import EffectFailed
from supervisor.engine.segments import Segments, SegmentsOf
from supervisor.engine.start_after import wait_for_peers
from supervisor.process.gate import GateReport, GateSpec, Port
from supervisor.service.credentials import Secrets
from supervisor.service.launch import Launch, LaunchError, expanded_unit, unit_launch
from supervisor.service.outcomes import ConditionUnmet, DependencyUnmet, StartFailed
from supervisor.service.service import Service
from supervisor.unit.model import Engine, Unit
from supervisor.unit.state import UnitState
from supervisor.unit.states import RunState, SubState
from supervisor.wire import EngineHealth, ExitInfo, StartCmdMsg

log = logging.getLogger(__name__)

ASKED_BY = "controller"

DEPENDENCIES_SEC = 120.0
"""In a relaunch, as long as a controller waits for a prepare: while engines are being cleaned the arbiter does not
count, so a dependency that hangs would keep a container without an engine for ever. A first start waits for downloads.
"""

Gate = Callable[[GateSpec], Awaitable[GateReport]]
"""`supervisor.process.gate.run_gate` in this container."""


class Surroundings(msgspec.Struct, frozen=True):
    """What the engine is run with; none of it changes in the life of the supervisor."""

    boot_id: str
    job_name: str
    namespace: str
    role: str
    pod_ip: str
    environment: Mapping[str, str]
    """The supervisor's own."""
    secrets: Secrets
    grace_period_sec: float
    booted_at_wall: float
    """Unix time; files of this engine cannot be older."""
    service: Service
    dependencies_active: Callable[[], Awaitable[None]]
    gate: Gate
    segments_of: SegmentsOf
    write_stdout: Callable[[bytes], None]
    """Straight to the container's, past the output of units."""


class PodEngine:
    """One per supervisor that has an engine unit."""

    def __init__(
        self,
        surroundings: Surroundings,
        operation: Callable[[], Operation],
        feed: Callable[[progress.Event], None],
    ) -> None:
        self.service = surroundings.service
        self.segments = Segments(surroundings.service, surroundings.segments_of)
        self._with = surroundings
        self._operation = operation
        self._feed = feed

    @property
    def unit(self) -> Unit:
        return self.service.unit

    @property
    def engine(self) -> Engine:
        engine = self.service.unit.engine
        assert engine is not None, f"{self.service.unit.name} is no engine"
        return engine

    # --- effects: what the operator can have done ----------------------------------------------------------------

    def misfit(self, placement: StartCmdMsg) -> str | None:
        here = self._with
        return placements.misfit(placement, self.engine, job_name=here.job_name, pod_ip=here.pod_ip)

    async def stop_engine(self, reason: str) -> None:
        report = await self.service.stop(asked_by=ASKED_BY, reason=reason, grace_sec=self._relaunch_grace())
        if report.survivors:
            raise EffectFailed(f"the old engine cannot be ended: {', '.join(report.survivors)}")

    async def clean(self, placement: StartCmdMsg) -> None:
        try:
            with trio.fail_after(DEPENDENCIES_SEC if self._operation().ever_started else math.inf):
                await self.dependencies_active()
            await self._pass_gate(self._plan(placement))
        except trio.TooSlowError as error:
            waited = f"what the engine comes after was not active within {DEPENDENCIES_SEC:g} s"
            raise EffectFailed(f"{waited}; `podvisor status` shows what is not") from error
        except (LaunchError, DependencyUnmet, ConditionUnmet) as error:
            raise EffectFailed(str(error)) from error

    async def dependencies_active(self) -> None:
        """Until everything that the engine comes After is active; for ever, if that never happens."""
        await self._with.dependencies_active()

    def announce_relaunch(self, number: int, placement: StartCmdMsg, reason: str) -> None:
        when = wire.timestamp(datetime.now(UTC))
        text = banner(number, when, epoch=placement.epoch or 0, instance_id=placement.instance_id, reason=reason)
        self._with.write_stdout(text.encode())

    async def spawn_engine(self) -> None:
        try:
            await self.service.start(asked_by=ASKED_BY)
        except StartFailed as failure:
            raise EffectFailed(f"the engine cannot be started: {failure}") from failure

    async def await_handshake(self) -> None:
        state = await self.service.wait_until(lambda state: state.state is RunState.ACTIVE or not _under_way(state))
        if state.state is not RunState.ACTIVE:
            raise EffectFailed(f"the engine did not become ready: {_why_dead(state)}")

    # --- what is seen --------------------------------------------------------------------------------------------

    def facts(self, now: float) -> EngineFacts:
        state = self.service.state
        spawned = state.spawned_at
        complaint = state.complaints[0] if state.complaints else None
        return EngineFacts(
            ready=state.state is RunState.ACTIVE,
            unhealthy=f"{complaint.probe}: {complaint.reason}" if complaint is not None else None,
            in_grace=spawned is not None and now - spawned < self._with.grace_period_sec,
        )

    def death(self) -> str | None:
        """Why the engine is dead though nobody asked for it; None while it lives or was stopped."""
        state = self.service.state
        return None if not _died(state) else _why_dead(state)

    def observation(self) -> Observation:
        state, operation = self.service.state, self._operation()
        complaint = state.complaints[0] if state.complaints else None
        return Observation(
            epoch=operation.epoch,
            endpoint_id=self.endpoint_id,
            step=operation.step,
            pid=state.spawned_pid,
            dead=operation.dead,
            unhealthy=complaint.reason if complaint is not None else None,
            ever_normal=state.ready_once,
            probe=complaint.probe if complaint is not None else "liveness",
            exit=_exit_info(state),
        )

    def fault_message(self, report: DeathReport) -> wire.SoftwareFaultMsg:
        here, operation = self._with, self._operation()
        return wire.SoftwareFaultMsg(
            exception_type=report.exception_type,
            exception_message=report.message,
            engine_id=report.endpoint_id,
            engine_status=EngineHealth.DEAD,
            pod_ip=here.pod_ip,
            job_name=here.job_name,
            namespace=here.namespace,
            instance_id=operation.instance_id,
            epoch=report.epoch,
            term=operation.term,
            boot_id=operation.boot_id,
            pid=report.pid,
            exit=report.exit,
        )

    @property
    def endpoint_id(self) -> int:
        placement = self._operation().placement
        return placement.endpoints[0].id if placement is not None else 0

    # --- launch --------------------------------------------------------------------------------------------------

    def launch(self) -> Launch:
        """What the service executes: the operation's placement through the unit's launcher. Raises LaunchError."""
        placement = self._placed()
        plan = self._plan(placement)
        launch = unit_launch(self.unit, self._with.environment, self._variables(placement), self._with.secrets)
        if not plan.serves_http and plan.probes != launch.probes:
            log.info(
                "rank %d serves no HTTP: its Http and Tcp probes are not asked, it is well while its processes live",
                placement.node_rank,
                extra={"unit": self.unit.name, "epoch": placement.epoch},
            )
        return replace(
            launch,
            argv=plan.argv,
            probes=plan.probes,
            environment={**launch.environment, **plan.environment},
            critical_processes=plan.critical_processes,
        )

    async def before_spawn(self) -> None:
        """Peers that must listen first; part of the start, within its deadline. Raises LaunchError."""
        await wait_for_peers(self._plan(self._placed()).start_after)

    async def before_standalone_spawn(self) -> None:
        """Without a controller the unit's own policy starts the engine: each start is an operation of its own."""
        here, operation = self._with, self._operation()
        epoch = operation.epoch + 1
        placement = placements.standalone(
            self.engine, job_name=here.job_name, role=here.role, pod_ip=here.pod_ip, epoch=epoch
        )
        await self._pass_gate(self._plan(placement))
        if operation.ever_started:
            self.announce_relaunch(operation.relaunch_count + 1, placement, self.service.state.reason)
        self._feed(progress.StartedLocally(placement, epoch))
        await self.before_spawn()

    async def _pass_gate(self, plan: LaunchPlan) -> None:
        report = await self._with.gate(
            GateSpec(
                invocation_ids=frozenset(self.service.invocation_ids),
                ports=tuple(Port(self._any_address, number, f"{self.unit.name} port") for number in plan.ports),
                shared_memory_patterns=plan.shared_memory_patterns,
                shared_memory_recorded=self.segments.recorded,
                shared_memory_not_before=self._with.booted_at_wall,
                lock_patterns=plan.lock_patterns,
            ),
        )
        if not report.passed:
            raise LaunchError(f"the hygiene gate did not pass: {report.reason}")

    @property
    def _any_address(self) -> str:
        return "::" if ":" in self._with.pod_ip else "0.0.0.0"

    def _placed(self) -> StartCmdMsg:
        placement = self._operation().placement
        if placement is None:
            raise LaunchError("no placement yet: the controller has not started this instance")
        return placement

    def _relaunch_grace(self) -> float:
        """Followers of a broken gang hang in collectives: only SIGKILL ends them, so nothing is waited for."""
        placement = self._operation().placement
        follower = placement is not None and placement.endpoints[0].headless
        return 0.0 if follower else self.unit.service.stop.relaunch_timeout_sec

    def placement_variables(self) -> dict[str, str]:
        """Of the engine that runs or is being prepared; none before the first placement."""
        placement = self._operation().placement
        return {} if placement is None else self._variables(placement)

    def _variables(self, placement: StartCmdMsg) -> dict[str, str]:
        return placements.variables(placement, self.engine, pod_ip=self._with.pod_ip)

    def _plan(self, placement: StartCmdMsg) -> LaunchPlan:
        here = self._with
        expanded, _ = expanded_unit(self.unit, here.environment, self._variables(placement), here.secrets)
        return plan_launch(expanded, rank_of(placement, pod_ip=self._with.pod_ip))


def _died(state: UnitState) -> bool:
    if state.fault is not None:
        return True  # seen at once, while the rest of its tree is still being ended
    ending = state.last_ending
    return state.state is RunState.FAILED and ending is not None and ending.asked_by is None


def _under_way(state: UnitState) -> bool:
    return state.state is RunState.ACTIVATING and state.sub_state is not SubState.AUTO_RESTART


def _why_dead(state: UnitState) -> str:
    if state.fault is not None:
        return state.fault.cause
    return state.last_ending.cause if state.last_ending is not None else state.reason


def _exit_info(state: UnitState) -> ExitInfo | None:
    if state.exit is not None:
        return ExitInfo(code=state.exit.code, signal=state.exit.signal, cause=_why_dead(state))
    if state.last_ending is None:
        return None
    ending = state.last_ending
    return ExitInfo(code=ending.code, signal=ending.signal, cause=ending.cause)
