"""This pod's part of the gang: what can be done to its engines, for the operator; always to all of them at once.

Only these units are ever touched (seed S26). One endpoint, how it is launched and what is seen of it, is
`endpoint_engine.py`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import msgspec
import trio

from supervisor import wire
from supervisor.engine.device_health import check_devices
from supervisor.engine.endpoint_engine import EndpointEngine, Here, is_starting, why_dead
from supervisor.engine.model import placement as placements
from supervisor.engine.model import progress
from supervisor.engine.model.banner import banner
from supervisor.engine.model.operation import Operation
from supervisor.engine.model.reports import DeathReport, Observation
from supervisor.engine.operator import EffectFailed
from supervisor.engine.recover import ask_to_recover
from supervisor.service.launch import HardwareFault, LaunchError
from supervisor.service.outcomes import ConditionUnmet, DependencyUnmet, StartFailed
from supervisor.service.service import Service
from supervisor.unit.model import Engine
from supervisor.unit.states import RunState
from supervisor.wire import EngineHealth, FaultCategory, StartCmdMsg

ASKED_BY = "controller"

DEPENDENCIES_SEC = 120.0
"""In a relaunch, as long as a controller waits for a prepare: while engines are being cleaned the arbiter does not
count, so a dependency that hangs would keep a container without an engine for ever. A first start waits for downloads.
"""


class Surroundings(msgspec.Struct, frozen=True):
    """What the engines are run with; none of it changes in the life of the supervisor."""

    boot_id: str
    job_name: str
    namespace: str
    role: str
    here: Here
    services: tuple[Service, ...]
    """Of the endpoints, in their order; they are made from one unit file."""
    dependencies_active: Callable[[], Awaitable[None]]
    take_declaration: Callable[[], Awaitable[str]]
    """What a reload has held back for these services is in force; of which digest it is. They must be stopped."""
    write_stdout: Callable[[bytes], None]
    """Straight to the container's, past the output of units."""


class PodEngine:
    """One per engine's unit file."""

    def __init__(
        self,
        surroundings: Surroundings,
        operation: Callable[[], Operation],
        feed: Callable[[progress.Event], None],
    ) -> None:
        self.endpoints = tuple(
            EndpointEngine(service, surroundings.here, operation) for service in surroundings.services
        )
        self._with = surroundings
        self._operation = operation
        self._feed = feed

    @property
    def services(self) -> tuple[Service, ...]:
        return self._with.services

    @property
    def name(self) -> str:
        """Of the unit file."""
        return self.engine.declared_by

    @property
    def engine(self) -> Engine:
        """As far as the endpoints do not differ."""
        return self.endpoints[0].engine

    def endpoint_of(self, service: Service) -> EndpointEngine:
        return next(endpoint for endpoint in self.endpoints if endpoint.service is service)

    # --- effects: what the operator can have done ----------------------------------------------------------------

    def misfit(self, placement: StartCmdMsg) -> str | None:
        here = self._with
        return placements.misfit(placement, self.engine, job_name=here.job_name, pod_ip=here.here.pod_ip)

    async def stop_engine(self, reason: str) -> None:
        survivors = await self._stop_all(reason)
        if survivors:
            raise EffectFailed(f"the old engine cannot be ended: {', '.join(survivors)}")

    async def take_configuration(self, digest: str) -> None:
        taken = await self._with.take_declaration()
        if taken != digest:
            raise EffectFailed(f"the configuration here is {taken}, and not {digest} as in the gang's other pods")

    async def clean(self, placement: StartCmdMsg) -> None:
        try:
            with trio.fail_after(DEPENDENCIES_SEC if self._operation().ever_started else math.inf):
                await self.dependencies_active()
            await self._pass_gate(self.endpoints, placement)
        except trio.TooSlowError as error:
            waited = f"what the engine comes after was not active within {DEPENDENCIES_SEC:g} s"
            raise EffectFailed(f"{waited}; `podvisor status` shows what is not") from error
        except HardwareFault as fault:
            raise EffectFailed(str(fault), FaultCategory.HARDWARE) from fault
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
        await self._for_all(self._spawn)

    async def await_handshake(self) -> None:
        await self._for_all(self._await_handshake)

    async def recover_engine(self, recovery: str | None, fault_code: int | None) -> None:
        """Every endpoint is asked; none is stopped for the failure of another."""
        placement = self._operation().placement
        assert placement is not None, "asked only of an engine that was started"
        failures: list[str] = []

        async def ask(endpoint: EndpointEngine) -> None:
            complaint = await ask_to_recover(endpoint, placement, recovery, fault_code)
            if complaint is not None:
                failures.append(f"{self._which(endpoint)}: {complaint}")

        async with trio.open_nursery() as nursery:
            for endpoint in self.endpoints:
                nursery.start_soon(ask, endpoint)
        if failures:
            raise EffectFailed("; ".join(sorted(failures)))

    async def _spawn(self, endpoint: EndpointEngine) -> None:
        try:
            await endpoint.service.start(asked_by=ASKED_BY)
        except StartFailed as failure:
            raise EffectFailed(f"{self._which(endpoint)} cannot be started: {failure}") from failure

    async def _await_handshake(self, endpoint: EndpointEngine) -> None:
        state = await endpoint.service.wait_until(
            lambda state: state.state is RunState.ACTIVE or not is_starting(state)
        )
        if state.state is not RunState.ACTIVE:
            raise EffectFailed(f"{self._which(endpoint)} did not become ready: {why_dead(state)}")

    async def _for_all(self, effect: Callable[[EndpointEngine], Awaitable[None]]) -> None:
        """Raise the first EffectFailed; then no engine is left, because without one of them the others are no use."""
        failures: list[EffectFailed] = []

        async def attempt(endpoint: EndpointEngine) -> None:
            try:
                await effect(endpoint)
            except EffectFailed as failure:
                failures.append(failure)
                nursery.cancel_scope.cancel(reason="another endpoint has failed")

        async with trio.open_nursery() as nursery:
            for endpoint in self.endpoints:
                nursery.start_soon(attempt, endpoint)
        if not failures:
            return
        if len(self.endpoints) > 1:
            await self._stop_all(str(failures[0]))
        raise failures[0]

    async def _stop_all(self, reason: str) -> list[str]:
        """What survived, in words. Cancelled: the stops go on in the services."""
        survivors: list[str] = []

        async def stop(endpoint: EndpointEngine) -> None:
            await endpoint.segments.look()
            report = await endpoint.service.stop(asked_by=ASKED_BY, reason=reason, grace_sec=self._relaunch_grace())
            survivors.extend(report.survivors)

        async with trio.open_nursery() as nursery:
            for endpoint in self.endpoints:
                nursery.start_soon(stop, endpoint)
        return survivors

    def _which(self, endpoint: EndpointEngine) -> str:
        return "the engine" if len(self.endpoints) == 1 else endpoint.unit.name

    # --- a start that nobody coordinates -------------------------------------------------------------------------

    async def before_standalone_spawn(self, endpoint: EndpointEngine) -> None:
        """Without a controller the unit's own policy starts the engine: each start is an operation of its own."""
        await self._pass_gate((endpoint,), self._standalone())
        placement = self._standalone()  # another endpoint may have been started meanwhile
        again, reason = endpoint.service.state.started > 0, endpoint.service.state.reason
        self._feed(progress.StartedLocally(placement, placement.epoch or 0, endpoint.id, again, reason))
        await endpoint.before_spawn()

    def _standalone(self) -> StartCmdMsg:
        here, epoch = self._with, self._operation().epoch + 1
        return placements.standalone(
            self.engine, job_name=here.job_name, role=here.role, pod_ip=here.here.pod_ip, epoch=epoch
        )

    # --- what is seen --------------------------------------------------------------------------------------------

    def observations(self) -> tuple[Observation, ...]:
        return tuple(endpoint.observation() for endpoint in self.endpoints)

    def fault_message(self, report: DeathReport) -> wire.SoftwareFaultMsg:
        here, operation = self._with, self._operation()
        return wire.SoftwareFaultMsg(
            exception_type=report.exception_type,
            exception_message=report.message,
            engine_id=report.endpoint_id,
            engine_status=EngineHealth.DEAD,
            pod_ip=here.here.pod_ip,
            job_name=here.job_name,
            namespace=here.namespace,
            instance_id=operation.instance_id,
            epoch=report.epoch,
            term=operation.term,
            boot_id=operation.boot_id,
            pid=report.pid,
            exit=report.exit,
            category=report.category,
        )

    def progress_age_sec(self, now: float) -> float | None:
        """Of the endpoint that has shown none for the longest: its start is the one that may be given up."""
        ages = [age for service in self.services if (age := service.progress_age_sec(now)) is not None]
        return max(ages, default=None)

    def placement_variables(self) -> dict[str, str]:
        """Of the engine that runs or is being prepared, its first endpoint; none before the first placement."""
        placement = self._operation().placement
        if placement is None:
            return {}
        return placements.variables(placement, self.engine, pod_ip=self._with.here.pod_ip)

    # --- the gate ------------------------------------------------------------------------------------------------

    async def _pass_gate(self, endpoints: Sequence[EndpointEngine], placement: StartCmdMsg) -> None:
        complaints: list[str] = []

        async def attempt(endpoint: EndpointEngine) -> None:
            try:
                await endpoint.pass_gate(placement)
            except LaunchError as error:
                complaints.append(str(error))

        async with trio.open_nursery() as nursery:
            for endpoint in endpoints:
                nursery.start_soon(attempt, endpoint)
        if complaints:
            raise LaunchError("; ".join(sorted(complaints)))
        await check_devices(endpoints, placement)

    def _relaunch_grace(self) -> float:
        """Followers of a broken gang hang in collectives: only SIGKILL ends them, so nothing is waited for."""
        placement = self._operation().placement
        follower = placement is not None and placement.endpoints[0].headless
        return 0.0 if follower else self.endpoints[0].unit.service.stop.relaunch_timeout_sec
