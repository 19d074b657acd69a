"""Everything that runs in this pod: the units, and the supervision of the engine among them.

The composition root below the program: it gives every part what it needs and decides nothing. What the HTTP stack
adds later (`online.py`) hangs on here too, so that people see it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import trio
from msgspec.structs import replace

from supervisor import wire
from supervisor.api.readiness import Readiness, readiness
from supervisor.configuration import (
    Configuration,
    config_digest,
    identity_of,
    place_of,
    ported,
    read_files,
    settled_variables,
)
from supervisor.ending import EXIT_OK, EXIT_RESTART_CONTAINER, Ending
from supervisor.engine.arbiter import ArbiterTask
from supervisor.engine.endpoint_engine import EndpointEngine, Here
from supervisor.engine.model import progress
from supervisor.engine.model.arbiter import ArbiterSettings, Situation, Verdict
from supervisor.engine.model.draining import DrainSettings
from supervisor.engine.model.freeze import FreezeLimits
from supervisor.engine.model.operation import OperationSettings
from supervisor.engine.model.rules import coordinated_rules, standalone_rules
from supervisor.engine.operator import CommandRefused
from supervisor.engine.pod_engine import PodEngine
from supervisor.engine.pod_engine import Surroundings as EngineSurroundings
from supervisor.engine.register_manager import RegisterManager, ServicePorts
from supervisor.engine.relaunch_request import RelaunchRequest
from supervisor.engine.run_history import RunHistory
from supervisor.engine.supervision import EngineSupervision, SupervisionSettings
from supervisor.host import Host
from supervisor.pod_events import PodEvents
from supervisor.pod_metrics import Gauges, PodMetrics
from supervisor.process.drops import Drop
from supervisor.process.state_files import StateFiles
from supervisor.reload import Files, ReloadRefused, Reloads, Workshop
from supervisor.service.exit_archive import ExitArchive
from supervisor.service.exits import Exits
from supervisor.service.launch import unit_launch
from supervisor.service.launch_files import LaunchFiles
from supervisor.service.operations import nothing_to_wait_for
from supervisor.service.outcomes import Observer, Transition
from supervisor.service.rearrangement import Definition
from supervisor.service.service import Service
from supervisor.service.units import Units
from supervisor.settings import differing_keys, shutdown_timeout
from supervisor.start_limits import StartLimits
from supervisor.unit import endpoints as ports
from supervisor.unit.errors import ConfigurationError
from supervisor.unit.events import RecordEnding
from supervisor.unit.graph import Graph
from supervisor.unit.model import Engine, EngineStart, RestartWith, Unit
from supervisor.unit.state import Rules, rules_of
from supervisor.version import VERSION

log = logging.getLogger(__name__)

ASKED_BY = "podvisor"

LEFT_FOR_STOP_SEC = 6.0
"""So long before the deadline of an orderly end a drain is over, wherever it is: what else runs is still asked to end.
"""


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
        section = configuration.settings.supervisor
        self.events = PodEvents(section.suicide_threshold)
        self.metrics = PodMetrics(configuration.settings.pod.namespace, section.job_name)
        self._start_limits = StartLimits()
        self._arbiter = ArbiterTask(
            ArbiterSettings(section.heartbeat_interval_seconds, section.suicide_threshold),
            self._situation,
            self._start_limits.changed,
            self._end,
            (self.events.arbiter_counted,),
        )
        self.farewell: Callable[[], Awaitable[None]] = nothing_to_wait_for
        """Tells the controller that this pod leaves, within a moment; set by whoever can speak to it."""
        self.last_word: Callable[[], Awaitable[None]] = nothing_to_wait_for
        """Tells it that nothing runs here any more; likewise."""
        self._patience = trio.CancelScope()
        """Around the drain of an orderly end."""
        self.supervisions: dict[str, EngineSupervision] = {}
        """By the name of the engine's unit file; the one that may belong to a gang comes first."""
        self.relaunch_request = RelaunchRequest(self._first_of_gang)
        self.units = Units(
            Graph.of(configuration.units),
            lambda: {**configuration.environment, **self._placement()},
            started_elsewhere=[unit.name for unit in configuration.units if self._waits_for_controller(unit)],
            gang={unit.name: self.relaunch_request.make for unit in configuration.units if self._in_gang(unit)},
            disk=host.disk,
        )
        self._files = LaunchFiles(host.disk, host.secrets)
        self._state_files = StateFiles(host.disk)
        self._archive = ExitArchive(configuration.state_dir, configuration.boot_id, self._state_files)
        for unit in configuration.units:
            self.units.add(self._service(unit))
        for endpoints in configuration.engines:
            supervision = self._supervise(endpoints, nm_port)
            self.supervisions[supervision.engine.name] = supervision
        self.reloads = Reloads(self.units, Workshop(self._service, self._definition, self._in_gang), self._read_files)
        for supervision in self.supervisions.values():
            supervision.node_manager.read_files = partial(self._reload_for_rollout, supervision)

    @property
    def supervision(self) -> EngineSupervision | None:
        """Of the engine by which this pod is known to its controller, to routers and to readyz."""
        return next(iter(self.supervisions.values()), None)

    def supervision_of(self, service: Service) -> EngineSupervision | None:
        """None if that is no engine."""
        engine = service.unit.engine
        return None if engine is None else self.supervisions[engine.declared_by]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the units and go on until cancelled; then every unit's tree is stopped before this returns."""
        async with self._state_files.being_written(), trio.open_nursery() as nursery:
            await nursery.start(self.units.run)
            nursery.start_soon(partial(self.units.start_all, asked_by=ASKED_BY))
            for supervision in self.supervisions.values():
                await nursery.start(supervision.run)
            await nursery.start(self.reloads.run)
            nursery.start_soon(self._arbiter.run)
            nursery.start_soon(self._hurry_when_told)
            nursery.start_soon(self._archive.run)
            nursery.start_soon(self.events.watch_ending, self._ending)
            task_status.started()

    async def leave(self, deadline: float) -> None:
        """From here on nothing is ready, nobody relaunches, and no death of an engine is news.

        When it returns the controller has been told, and the engine has had the time to finish its requests; unless
        the container is to be restarted: then nothing here is worth waiting for. `deadline` is that of the whole end.
        Cancelled: the drain goes on.
        """
        self._patience.deadline = deadline - min(LEFT_FOR_STOP_SEC, (deadline - trio.current_time()) / 2)
        with self._patience:
            if self._ending.is_orderly:
                await self.drain(self._ending.reason)
            else:
                await self._bid_farewell(self._ending.reason)

    async def drain(self, reason: str) -> None:
        """The first half of an orderly end, which has to follow: this pod leaves. Cancelled: it goes on."""
        await self._bid_farewell(reason)
        for supervision in self.supervisions.values():
            supervision.drain.begin(reason)
        for supervision in self.supervisions.values():
            await supervision.drain.finished()

    async def _bid_farewell(self, reason: str) -> None:
        for supervision in self.supervisions.values():
            supervision.operator.feed(progress.Leaving(reason))
        self.reloads.close(reason)
        await self.farewell()

    def shutdown_sec(self) -> float:
        """How long an orderly stop of the units that are here now may take."""
        return shutdown_timeout(self._configuration.settings.supervisor, [service.unit for service in self.units])

    async def part(self) -> None:
        """After `stop`. A container that is to be restarted comes back: it is missed until then."""
        if self._ending.is_orderly:
            await self.last_word()

    async def stop(self, deadline: float) -> None:
        left = await self.units.stop_all(deadline, asked_by=ASKED_BY, reason=self._ending.reason)
        for name, report in left.items():
            log.error("%s is not gone: %s", name, "; ".join(report.survivors), extra={"unit": name})
        self._archive.flush()

    def readiness(self, registered: bool | None, instance: str = "") -> Readiness:
        """`registered`: whether the controller knows this pod; None without one. `instance`: why it does not serve."""
        supervision = self.supervision
        endpoint = supervision.node_manager.endpoint_status() if supervision is not None else None
        counted = tuple(self.units) if supervision is None else supervision.engine.services
        waiting = (service.unit.name for service in self.units if not service.state.satisfied)
        displaced = self.units.displaced()
        return readiness(
            waiting=[name for name in waiting if name not in displaced],
            registered=registered,
            endpoint=endpoint,
            ending=self._ending.reason,
            unready=[service.unit.name for service in counted if service.state.unready],
            instance=instance,
        )

    def supervisor_view(self, controller: str | None) -> wire.SupervisorView:
        now = trio.current_time()
        view = wire.SupervisorView(
            pid=os.getpid(),
            version=VERSION,
            boot_id=self._configuration.boot_id,
            uptime_sec=round(now - self._booted_at, 3),
            controller=controller,
            previous_container=self._configuration.previous_container,
            arbiter_count=self._arbiter.count,
        )
        return self.supervision.complete(view, now) if self.supervision is not None else view

    def gauges(self, controller_up: bool | None, answered_at: float | None) -> Gauges:
        """`controller_up` is None without a controller, `answered_at` before its first answer."""
        now, supervision = trio.current_time(), self.supervision
        return Gauges(
            units={service.unit.name: service.state.state for service in self.units},
            freeze_sec=None if supervision is None else supervision.operator.state.freeze_remaining(now),
            arbiter_count=None if supervision is None else self._arbiter.count,
            controller_up=controller_up,
            heartbeat_age_sec=None if answered_at is None else now - answered_at,
        )

    async def _hurry_when_told(self) -> None:
        await self._ending.hurried.wait()
        self._patience.cancel(reason="hurried")
        self.units.hurry()

    # --- units ---------------------------------------------------------------------------------------------------

    def _placement(self) -> dict[str, str]:
        """The placement variables as far as they are known now, for every unit (design 2)."""
        known = settled_variables(self._configuration)
        return known if self.supervision is None else known | self.supervision.engine.placement_variables()

    def _service(self, unit: Unit) -> Service:
        exits, definition = Exits(self._archive.earlier(unit.name)), self._definition(unit)
        before_spawn = nothing_to_wait_for if unit.engine is None else partial(self._before_spawn, unit)
        return Service(
            unit,
            definition.rules,
            self._host.processes,
            self._host.output_of(unit, self._dropped),
            definition.launch,
            around=self.units.surroundings_of(unit.name, before_spawn),
            observers=self._observers(unit, exits),
            exits=exits,
            secrets=self._host.secrets,
        )

    def _definition(self, unit: Unit) -> Definition:
        if unit.engine is not None:
            return Definition(unit, self._engine_rules(unit), lambda: self._endpoint(unit).launch())
        environment = self._configuration.environment
        return Definition(unit, rules_of(unit), lambda: unit_launch(unit, environment, self._placement(), self._files))

    async def _read_files(self) -> Files:
        """As they are now. Raise ConfigurationError."""
        return await self._host.disk.ask_or_here("unit files", self._files_now)

    def _files_now(self) -> Files:
        configuration = self._configuration
        settings, units = read_files(configuration.options, configuration.environment)
        in_force = configuration.settings
        return Files(ported(units, in_force.supervisor.port_base), differing_keys(in_force, settings))

    def _in_gang(self, unit: Unit) -> bool:
        return unit.engine is not None and self._is_coordinated(unit)

    def _engine_rules(self, unit: Unit) -> Rules:
        if not self._is_coordinated(unit):
            return standalone_rules(unit)
        fault = self._configuration.settings.fault_tolerance_config
        return coordinated_rules(unit, fault.engine_restart_wait_timeout_sec)

    async def _before_spawn(self, unit: Unit) -> None:
        endpoint = self._endpoint(unit)
        if self._is_coordinated(unit):
            await endpoint.before_spawn()
        else:
            await self._engine_of(unit).before_standalone_spawn(endpoint)

    def _is_coordinated(self, unit: Unit) -> bool:
        assert unit.engine is not None, f"{unit.name} is no engine"
        declared = unit.engine.restart_with
        return self._configuration.coordinated if declared is None else declared is RestartWith.COORDINATED

    def _waits_for_controller(self, unit: Unit) -> bool:
        if unit.engine is None:
            return False
        declared = unit.engine.start
        return self._is_coordinated(unit) if declared is None else declared is EngineStart.CONTROLLER

    # --- the engine ----------------------------------------------------------------------------------------------

    async def _reload_for_rollout(self, supervision: EngineSupervision) -> str:
        try:
            outcome = await self.reloads.reload("the controller, for a rollout")
        except ReloadRefused as refused:
            raise CommandRefused(wire.ErrorCode.BUSY, str(refused)) from refused
        except ConfigurationError as error:
            problems = "; ".join(str(problem) for problem in error.problems)
            raise CommandRefused(wire.ErrorCode.FAILED, f"wrong files, nothing was changed: {problems}") from error
        names = {service.unit.name for service in supervision.engine.services}
        if stuck := [each for each in outcome.verdicts if each.name in names and each.held and each.waits is None]:
            words = f"{stuck[0].name}: {', '.join(stuck[0].held)}: {stuck[0].reason}"
            raise CommandRefused(wire.ErrorCode.FAILED, words)
        return self._digest_of(supervision, self.reloads.declared)

    async def _take_declaration(self, name: str) -> str:
        """Of the engine whose file has this name."""
        supervision = self.supervisions[name]
        await self.reloads.roll_out([service.unit.name for service in supervision.engine.services])
        digest = self._digest_of(supervision, lambda name: self.units.get(name).unit)
        registration = supervision.registration
        registration.identity = msgspec.structs.replace(registration.identity, config_digest=digest)
        return digest

    def _digest_of(self, supervision: EngineSupervision, declared: Callable[[str], Unit]) -> str:
        first = supervision.engine.services[0].unit.name
        return config_digest(declared(first), self._configuration.environment)

    def _first_of_gang(self) -> Service:
        assert self.supervision is not None, "only one rank of a gang asks"
        return self.supervision.engine.services[0]

    def _engine_of(self, unit: Unit) -> PodEngine:
        assert unit.engine is not None, f"{unit.name} is no engine"
        return self.supervisions[unit.engine.declared_by].engine

    def _endpoint(self, unit: Unit) -> EndpointEngine:
        return self._engine_of(unit).endpoint_of(self.units.get(unit.name))

    def _supervise(self, endpoints: tuple[Unit, ...], nm_port: int) -> EngineSupervision:
        configuration, unit = self._configuration, endpoints[0]
        section, fault = configuration.settings.supervisor, configuration.settings.fault_tolerance_config
        identity = identity_of(configuration, unit, nm_port)
        assert unit.engine is not None, f"{unit.name} is no engine"
        # This pod is known by one engine; any other stays its unit's business, and what it remembers is its own.
        known = not self.supervisions
        state_dir = configuration.state_dir if known else configuration.state_dir / unit.engine.declared_by
        return EngineSupervision(
            EngineSurroundings(
                boot_id=configuration.boot_id,
                job_name=section.job_name,
                namespace=identity.namespace,
                role=section.role,
                here=Here(
                    pod_ip=configuration.pod_ip,
                    environment=configuration.environment,
                    files=self._files,
                    fabric=configuration.fabric,
                    device_num=section.device_num,
                    grace_period_sec=section.grace_period_sec,
                    shared_memory_is_private=section.shm_scope == "pod",
                    gate=self._host.gate,
                    segments_of=self._host.segments_of,
                ),
                services=tuple(self.units.get(endpoint.name) for endpoint in endpoints),
                dependencies_active=lambda: self.units.dependencies.active(unit.name),
                take_declaration=partial(self._take_declaration, unit.engine.declared_by),
                write_stdout=self._host.write_stdout,
            ),
            RegisterManager(identity, _service_ports(unit.engine), state_dir, self._state_files.keep),
            RunHistory(state_dir, self._state_files.keep),
            SupervisionSettings(
                operation=OperationSettings(
                    enabled=fault.enable_engine_relaunch,
                    freeze=FreezeLimits(fault.engine_restart_freeze_sec, fault.engine_restart_freeze_silence_sec),
                    alone_after_sec=unit.service.restart.reset_sec,
                    recovers=unit.engine.recovers,
                ),
                drain=DrainSettings(section.drain_delay_sec, section.drain_sec),
                coordinated=self._is_coordinated(unit),
                place=place_of(configuration, unit),
                alone_after_sec=section.start_without_controller_after_sec,
            ),
            self._ending.restart_container,
            (self.events.operation_moved, self.metrics.operation_moved) if known else (),
        )

    def _situation(self) -> Situation:
        supervision = self.supervision
        engine = Situation() if supervision is None else supervision.node_manager.situation()
        return replace(engine, given_up=self._start_limits.given_up)

    def _end(self, verdict: Verdict) -> None:
        self._ending.request(EXIT_OK if verdict.success else EXIT_RESTART_CONTAINER, verdict.reason)

    def _observers(self, unit: Unit, exits: Exits) -> tuple[Observer, ...]:
        def keep_exits(transition: Transition) -> None:
            if any(isinstance(action, RecordEnding) for action in transition.actions):
                self._archive.note(unit.name, lambda: exits.views)

        return (self.events.unit_moved, self.metrics.unit_moved, self._start_limits.unit_moved, keep_exits)

    def _dropped(self, drop: Drop) -> None:
        self.events.output_dropped(drop)
        self.metrics.output_dropped(drop)


def _service_ports(engine: Engine) -> ServicePorts:
    numbers = range(engine.endpoints)
    return ServicePorts(
        business=tuple(str(ports.service_port(engine, number)) for number in numbers),
        management=tuple(str(ports.management_port(engine, number)) for number in numbers),
    )
