"""One endpoint of this pod: its service seen as an engine, and how it is launched on its rank.

The launch parameters come from the placement (seed S18). What can be done to the pod's engines, all at once, is in
`pod_engine.py`; what the operation's state makes of what is seen here stands in `model/status.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from supervisor.engine.hygiene import Gate, Hygiene
from supervisor.engine.launchers import CannotLaunch, LaunchPlan, plan_launch, rank_of
from supervisor.engine.launchers.environment import engine_environment
from supervisor.engine.launchers.fabric import Fabric
from supervisor.engine.model import placement as placements
from supervisor.engine.model.devices import DevicesError, visible_devices
from supervisor.engine.model.operation import Operation
from supervisor.engine.model.reports import Observation
from supervisor.engine.model.status import EngineFacts
from supervisor.engine.segments import Segments, SegmentsOf
from supervisor.engine.start_after import wait_for_peers
from supervisor.service.launch import Launch, LaunchError, expanded_unit, unit_launch
from supervisor.service.launch_files import LaunchFiles
from supervisor.service.service import Service
from supervisor.unit.canary import NAME as CANARY
from supervisor.unit.model import Engine, Unit
from supervisor.unit.state import UnitState
from supervisor.unit.states import RunState, SubState
from supervisor.wire import ExitInfo, StartCmdMsg

log = logging.getLogger(__name__)


class Here(msgspec.Struct, frozen=True):
    """What all engines of this pod have in common; none of it changes in the life of the supervisor."""

    pod_ip: str
    environment: Mapping[str, str]
    """The supervisor's own."""
    files: LaunchFiles
    fabric: Fabric | None
    device_num: int
    grace_period_sec: float
    shared_memory_is_private: bool
    """Nobody beyond our sight has segments in this container's /dev/shm."""
    gate: Gate
    segments_of: SegmentsOf


class EndpointEngine:
    """One per engine process of this pod."""

    def __init__(self, service: Service, here: Here, operation: Callable[[], Operation]) -> None:
        self.service = service
        self.segments = Segments(service, here.segments_of)
        self._hygiene = Hygiene(
            here.gate,
            service,
            self.segments,
            any_address="::" if ":" in here.pod_ip else "0.0.0.0",
            shared_memory_is_private=here.shared_memory_is_private,
        )
        self._here = here
        self._operation = operation

    @property
    def unit(self) -> Unit:
        return self.service.unit

    @property
    def engine(self) -> Engine:
        engine = self.service.unit.engine
        assert engine is not None, f"{self.service.unit.name} is no engine"
        return engine

    @property
    def id(self) -> int:
        """Its data-parallel rank in the gang; before the first placement its number in this pod."""
        ids, number = self._operation().endpoint_ids, self.engine.endpoint_number
        return ids[number] if ids else number

    async def pass_gate(self, placement: StartCmdMsg) -> None:
        """Raise LaunchError with what is in the way of this endpoint. What was cleaned up stays so."""
        launch, _ = await self.beside(placement)  # with its own devices: a sibling goes on using the others
        uid = await self._here.files.uid_of(self.unit.name, launch.execution.user)
        await self._hygiene.pass_gate(await self.plan(placement), launch, uid)

    # --- launch --------------------------------------------------------------------------------------------------

    async def launch(self) -> Launch:
        """What the service executes: the operation's placement through the unit's launcher. Raises LaunchError."""
        placement, unit, devices = self._placed(), self.unit, self._devices()  # as they are now, before any wait
        variables = self.variables(placement)
        plan = await self._plan(unit, placement, variables)
        launch = await unit_launch(unit, self._here.environment, variables, self._here.files)
        if not plan.serves_http and plan.probes != launch.probes:
            log.info(
                "rank %d serves no HTTP: its Http and Tcp probes are not asked, it is well while its processes live",
                placement.node_rank,
                extra={"unit": self.unit.name, "epoch": placement.epoch},
            )
        given = {**launch.environment, **devices}
        environment, left_out = engine_environment(given, plan.environment, plan.unwanted)
        if left_out:
            log.warning(
                "left out of the engine's environment: %s",
                "; ".join(left_out),
                extra={"unit": self.unit.name, "epoch": placement.epoch},
            )
        return replace(
            launch,
            argv=plan.argv,
            probes=plan.probes,
            environment=environment,
            critical_processes=plan.critical_processes,
            # Its leader may just be telling it to end; for longer than in a relaunch nothing is to be hoped for.
            stop_grace_sec=unit.service.stop.relaunch_timeout_sec if plan.ignores_kill_signal else None,
        )

    async def plan(self, placement: StartCmdMsg) -> LaunchPlan:
        """Raises LaunchError."""
        return await self._plan(self.unit, placement, self.variables(placement))

    async def _plan(self, unit: Unit, placement: StartCmdMsg, variables: Mapping[str, str]) -> LaunchPlan:
        assert unit.engine is not None, f"{unit.name} is no engine"
        here, number = self._here, unit.engine.endpoint_number
        expanded = await self._expanded(unit, variables)
        try:
            return plan_launch(expanded, rank_of(placement, number, pod_ip=here.pod_ip, fabric=here.fabric))
        except CannotLaunch as error:
            raise LaunchError(str(error)) from error

    async def beside(self, placement: StartCmdMsg) -> tuple[Launch, Engine]:
        """What commands beside the engine see, and the engine's table with its strings expanded. Raises LaunchError."""
        unit, variables, devices = self.unit, self.variables(placement), self._devices()
        launch = await unit_launch(unit, self._here.environment, variables, self._here.files)
        expanded = await self._expanded(unit, variables)
        assert expanded.engine is not None, f"{unit.name} is no engine"
        return replace(launch, environment={**launch.environment, **devices}), expanded.engine

    async def _expanded(self, unit: Unit, variables: Mapping[str, str]) -> Unit:
        """Raises LaunchError."""
        environment = self._here.environment
        files = await self._here.files.read(unit, {**environment, **variables})
        return expanded_unit(unit, environment, variables, files)

    def variables(self, placement: StartCmdMsg) -> dict[str, str]:
        """Raises LaunchError."""
        known = placements.variables(placement, self.engine, pod_ip=self._here.pod_ip)
        for devices in self._devices().values():
            known.setdefault("DEVICE_IDS", devices)
        return known

    async def before_spawn(self) -> None:
        """Peers that must listen first; part of the start, within its deadline. Raises LaunchError."""
        plan = await self.plan(self._placed())
        await wait_for_peers(plan.start_after)

    def _placed(self) -> StartCmdMsg:
        placement = self._operation().placement
        if placement is None:
            raise LaunchError("no placement yet: the controller has not started this instance")
        return placement

    def _devices(self) -> dict[str, str]:
        environment = {**self._here.environment, **dict(self.unit.service.execution.environment)}
        try:
            return visible_devices(self.engine, environment, self._here.device_num)
        except DevicesError as error:
            raise LaunchError(str(error)) from error

    # --- what is seen --------------------------------------------------------------------------------------------

    def facts(self, now: float) -> EngineFacts:
        state = self.service.state
        spawned = state.spawned_at
        complaint = state.complaints[0] if state.complaints else None
        return EngineFacts(
            ready=state.state is RunState.ACTIVE,
            unhealthy=f"{complaint.probe}: {complaint.reason}" if complaint is not None else None,
            in_grace=spawned is not None and now - spawned < self._here.grace_period_sec,
            endpoint_id=self.id,
        )

    @property
    def restoring(self) -> bool:
        return self.service.state.sub_state is SubState.RESTORING

    def death(self) -> str | None:
        """Why the engine is dead though nobody asked for it; None while it lives or was stopped."""
        state = self.service.state
        return why_dead(state) if _died(state) else None

    def observation(self) -> Observation:
        state, operation = self.service.state, self._operation()
        # A canary's word is told only while nothing else complains: alone it may have to wait.
        complaint = min(state.complaints, key=lambda each: each.probe == CANARY, default=None)
        return Observation(
            epoch=operation.epoch,
            endpoint_id=self.id,
            step=operation.step,
            pid=state.main_pid,
            dead=self.id in operation.dead,
            unhealthy=complaint.reason if complaint is not None else None,
            ever_normal=state.ready_once,
            probe=complaint.probe if complaint is not None else "liveness",
            exit=exit_info(state),
            device_fault=operation.device_fault,
        )


def is_starting(state: UnitState) -> bool:
    if state.falls_back:
        return True
    return state.state is RunState.ACTIVATING and state.sub_state is not SubState.AUTO_RESTART


def why_dead(state: UnitState) -> str:
    if state.fault is not None:
        return state.fault.cause
    return state.last_ending.cause if state.last_ending is not None else state.reason


def _died(state: UnitState) -> bool:
    if state.fault is not None:
        return True  # seen at once, while the rest of its tree is still being ended
    ending = state.last_ending
    return state.state is RunState.FAILED and ending is not None and ending.asked_by is None


def exit_info(state: UnitState) -> ExitInfo | None:
    """How the engine that is dead has ended, as far as that is known already."""
    if state.exit is not None:
        return ExitInfo(code=state.exit.code, signal=state.exit.signal, cause=why_dead(state))
    if state.fault is not None:
        return ExitInfo(code=state.fault.code, cause=state.fault.cause)  # its main process may live for a while yet
    if state.last_ending is None:
        return None
    ending = state.last_ending
    return ExitInfo(code=ending.code, signal=ending.signal, cause=ending.cause)
