"""Everything that runs in this pod: the units, and the supervision of the engine among them.

The composition root below the program: it gives every part what it needs and decides nothing. What the HTTP stack
adds later (`online.py`) hangs on here too, so that people see it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable

import trio

from supervisor import wire
from supervisor.api.readiness import Readiness, readiness
from supervisor.configuration import Configuration, identity_of, settled_variables
from supervisor.ending import EXIT_OK, Ending
from supervisor.engine.model import progress
from supervisor.engine.model.arbiter import ArbiterSettings
from supervisor.engine.model.freeze import FreezeLimits
from supervisor.engine.model.operation import OperationSettings
from supervisor.engine.model.rules import coordinated_rules, standalone_rules
from supervisor.engine.pod_engine import PodEngine
from supervisor.engine.pod_engine import Surroundings as EngineSurroundings
from supervisor.engine.register_manager import RegisterManager, ServicePorts
from supervisor.engine.relaunch_request import RelaunchRequest
from supervisor.engine.supervision import EngineSupervision, SupervisionSettings
from supervisor.host import Host
from supervisor.service.launch import unit_launch
from supervisor.service.operations import nothing_to_wait_for
from supervisor.service.outcomes import Observer, Transition
from supervisor.service.service import Service
from supervisor.service.units import Units
from supervisor.unit.events import ReportStartLimit
from supervisor.unit.graph import Graph
from supervisor.unit.model import EngineStart, RestartWith, StartLimitAction, Unit
from supervisor.unit.state import Rules, rules_of
from supervisor.version import VERSION

log = logging.getLogger(__name__)

ASKED_BY = "podvisor"


class Pod:
    """Make it inside trio; `run` is its life, `leave` and `stop` its orderly end."""

    def __init__(
        self,
        configuration: Configuration,
        host: Host,
        ending: Ending,
        *,
        nm_port: int,
    ) -> None:
        self._configuration = configuration
        self._host = host
        self._ending = ending
        self._booted_at = trio.current_time()
        self.farewell: Callable[[], Awaitable[None]] = nothing_to_wait_for
        """Tells the controller that this pod leaves, within a moment; set by whoever can speak to it."""
        self.relaunch_request = RelaunchRequest(lambda: self._engine.service)
        engine = configuration.engine_unit
        self.supervision: EngineSupervision | None = None
        self.units = Units(
            Graph.of(configuration.units),
            lambda: {**configuration.environment, **self._placement()},
            started_elsewhere=[engine.name] if engine is not None and self._waits_for_controller(engine) else [],
            gang={engine.name: self.relaunch_request.make} if engine and self._is_coordinated(engine) else {},
        )
        for unit in configuration.units:
            self.units.add(self._service(unit))
        if engine is not None:
            self.supervision = self._supervise(engine, nm_port)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the units and go on until cancelled; then every unit's tree is stopped before this returns."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.units.run)
            self.units.start_all(asked_by=ASKED_BY)
            if self.supervision is not None:
                await nursery.start(self.supervision.run)
            nursery.start_soon(self._hurry_when_told)
            task_status.started()

    async def leave(self) -> None:
        """From here on nothing is ready, nobody relaunches, and no death of an engine is news.

        When it returns the controller has been told, so that routing stops before the engine does.
        """
        if self.supervision is not None:
            self.supervision.operator.feed(progress.Leaving(self._ending.reason))
        await self.farewell()

    async def stop(self, deadline: float) -> None:
        left = await self.units.stop_all(deadline, asked_by=ASKED_BY, reason=self._ending.reason)
        for name, report in left.items():
            log.error("%s is not gone: %s", name, "; ".join(report.survivors), extra={"unit": name})

    def readiness(self, registered: bool | None) -> Readiness:
        """`registered`: whether the controller knows this pod; None without one."""
        endpoint = self.supervision.node_manager.judgement().status if self.supervision is not None else None
        counted = tuple(self.units) if self.supervision is None else (self.supervision.engine.service,)
        waiting = (service.unit.name for service in self.units if not service.state.satisfied)
        displaced = self.units.displaced()
        return readiness(
            waiting=[name for name in waiting if name not in displaced],
            registered=registered,
            endpoint=endpoint,
            ending=self._ending.reason,
            unready=[service.unit.name for service in counted if service.state.unready],
        )

    def supervisor_view(self, controller: str | None) -> wire.SupervisorView:
        now = trio.current_time()
        view = wire.SupervisorView(
            pid=os.getpid(),
            version=VERSION,
            boot_id=self._configuration.boot_id,
            uptime_sec=round(now - self._booted_at, 3),
            controller=controller,
        )
        return self.supervision.complete(view, now) if self.supervision is not None else view

    async def _hurry_when_told(self) -> None:
        await self._ending.hurried.wait()
        self.units.hurry()

    # --- units ---------------------------------------------------------------------------------------------------

    def _placement(self) -> dict[str, str]:
        """The placement variables as far as they are known now, for every unit (design 2)."""
        known = settled_variables(self._configuration)
        return known if self.supervision is None else known | self.supervision.engine.placement_variables()

    def _service(self, unit: Unit) -> Service:
        environment = self._configuration.environment
        output, observers = self._host.output_of(unit), self._observers(unit)
        if unit.engine is None:
            return Service(
                unit,
                rules_of(unit),
                self._host.processes,
                output,
                lambda: unit_launch(unit, environment, self._placement(), self._host.secrets),
                around=self.units.surroundings_of(unit.name),
                observers=observers,
                secrets=self._host.secrets,
            )
        return Service(
            unit,
            self._engine_rules(unit),
            self._host.processes,
            output,
            lambda: self._engine.launch(),
            around=self.units.surroundings_of(unit.name, self._before_spawn),
            observers=observers,
            secrets=self._host.secrets,
        )

    def _engine_rules(self, unit: Unit) -> Rules:
        if not self._is_coordinated(unit):
            return standalone_rules(unit)
        fault = self._configuration.settings.fault_tolerance_config
        return coordinated_rules(unit, fault.engine_restart_wait_timeout_sec)

    async def _before_spawn(self) -> None:
        if self._is_coordinated(self._engine.unit):
            await self._engine.before_spawn()
        else:
            await self._engine.before_standalone_spawn()

    def _is_coordinated(self, unit: Unit) -> bool:
        assert unit.engine is not None, f"{unit.name} is no engine"
        declared = unit.engine.restart_with
        return self._configuration.coordinated if declared is None else declared is RestartWith.COORDINATED

    def _waits_for_controller(self, unit: Unit) -> bool:
        assert unit.engine is not None, f"{unit.name} is no engine"
        declared = unit.engine.start
        return self._is_coordinated(unit) if declared is None else declared is EngineStart.CONTROLLER

    # --- the engine ----------------------------------------------------------------------------------------------

    @property
    def _engine(self) -> PodEngine:
        assert self.supervision is not None, "only an engine's service asks"
        return self.supervision.engine

    def _supervise(self, unit: Unit, nm_port: int) -> EngineSupervision:
        configuration = self._configuration
        section, fault = configuration.settings.supervisor, configuration.settings.fault_tolerance_config
        identity = identity_of(configuration, unit, nm_port)
        assert unit.engine is not None, f"{unit.name} is no engine"
        ports = ServicePorts(str(unit.engine.base_port), str(unit.engine.mgmt_port or unit.engine.base_port))
        return EngineSupervision(
            EngineSurroundings(
                boot_id=configuration.boot_id,
                job_name=section.job_name,
                namespace=identity.namespace,
                role=section.role,
                pod_ip=configuration.pod_ip,
                environment=configuration.environment,
                secrets=self._host.secrets,
                grace_period_sec=section.grace_period_sec,
                booted_at_wall=time.time(),
                service=self.units.get(unit.name),
                dependencies_active=lambda: self.units.dependencies_active(unit.name),
                gate=self._host.gate,
                segments_of=self._host.segments_of,
                write_stdout=self._host.write_stdout,
            ),
            RegisterManager(identity, ports, configuration.state_dir),
            SupervisionSettings(
                operation=OperationSettings(
                    enabled=fault.enable_engine_relaunch,
                    freeze=FreezeLimits(fault.engine_restart_freeze_sec, fault.engine_restart_freeze_silence_sec),
                    alone_after_sec=unit.service.restart.reset_sec,
                ),
                arbiter=ArbiterSettings(section.heartbeat_interval_seconds, section.suicide_threshold),
                coordinated=self._is_coordinated(unit),
            ),
            self._ending.restart_container,
        )

    def _observers(self, unit: Unit) -> tuple[Observer, ...]:
        def end_at_start_limit(transition: Transition) -> None:
            for action in transition.actions:
                if isinstance(action, ReportStartLimit):
                    self._start_limit_hit(unit, action)

        return (end_at_start_limit,)

    def _start_limit_hit(self, unit: Unit, report: ReportStartLimit) -> None:
        """The unit only reports; this ends the supervisor by the way that the arbiter's word goes, engine or not."""
        reason = f"StartLimitAction of {unit.name}: {report.reason}"
        match report.action:
            case StartLimitAction.EXIT:
                self._ending.restart_container(reason)
            case StartLimitAction.EXIT_SUCCESS:
                self._ending.request(EXIT_OK, reason)
            case StartLimitAction.NONE:
                pass
