"""What operators can ask of a pod, carried out on its units (`api/operations.py` is the HTTP side)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import trio

from supervisor import wire
from supervisor.api.operations import ControllerAway, NoSuchUnit, Refused
from supervisor.engine.controller_errors import ControllerError, ControllerUnreachable
from supervisor.engine.model import progress
from supervisor.engine.relaunch_request import NotTaken
from supervisor.pod import Pod
from supervisor.service import units
from supervisor.service.outcomes import StartFailed
from supervisor.service.service import Service
from supervisor.unit.states import SubState

if TYPE_CHECKING:
    from supervisor.engine.link import ControllerLink

RELAUNCH_REASON = "asked for by an operator"


class PodOperations:
    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self.link: ControllerLink | None = None
        """Set once the controller can be spoken to."""

    def overview(self) -> wire.UnitsView:
        now = trio.current_time()
        return wire.UnitsView(
            units=self._pod.units.views(now), supervisor=self._pod.supervisor_view(self._controller())
        )

    def unit(self, name: str) -> wire.UnitView:
        return self._service(name).view(trio.current_time())

    def exits(self, name: str) -> wire.ExitsView:
        return wire.ExitsView(exits=tuple(record.view for record in reversed(list(self._service(name).exits))))

    async def change(self, name: str, verb: str, *, asked_by: str, local: bool) -> wire.UnitView:
        """Raises NoSuchUnit, Refused. Cancelled: what was asked for goes on."""
        service = self._service(name)
        self._check_alone(service, verb, local)
        try:
            await self._change(service, verb, asked_by)
        except StartFailed as failure:
            raise Refused(f"cannot {verb} {name}: {failure}") from failure
        return service.view(trio.current_time())

    async def relaunch(self, asked_by: str) -> wire.RelaunchBegun:
        supervision = self._pod.supervision
        if supervision is None:
            raise Refused("there is no engine unit in this pod")
        if not supervision.coordinated:
            try:
                await self._pod.units.restart(supervision.engine.unit.name, asked_by=asked_by, reason=RELAUNCH_REASON)
            except StartFailed as failure:
                raise Refused(f"cannot relaunch {supervision.engine.unit.name}: {failure}") from failure
            return wire.RelaunchBegun(message="the engine was relaunched here")
        run = await self.relaunch_gang(f"asked for by {asked_by}")
        return wire.RelaunchBegun(
            message=f"run {run.id} relaunches instance {run.instance_id}; `podvisor relaunches {run.id}` shows it",
            run_id=run.id,
        )

    async def relaunch_gang(self, reason: str) -> wire.RunView:
        """The run that the controller has begun. Raises Refused, ControllerAway; then nothing was done."""
        supervision = self._pod.supervision
        instance_id = 0 if supervision is None else supervision.operator.state.instance_id
        if self.link is None or not instance_id:
            raise Refused("this pod belongs to no instance yet: the controller has not started it")
        try:
            return await self.link.client.relaunch(instance_id, reason)
        except ControllerUnreachable as error:
            raise ControllerAway(f"cannot reach the controller: {error}; nothing was done") from error
        except ControllerError as error:
            raise Refused(f"the controller did not take it: {error}; nothing was done") from error

    async def ask_for_relaunch(self, reason: str) -> None:
        """For what cannot be done to one rank alone. Raises NotTaken."""
        try:
            await self.relaunch_gang(reason)
        except (Refused, ControllerAway) as refusal:
            raise NotTaken(str(refusal)) from refusal

    def lines(self, name: str, count: int) -> list[str]:
        return self._service(name).output.lines(count)

    async def follow(self, name: str, count: int) -> AsyncIterator[str]:
        async for line in self._service(name).output.follow(count):
            yield str(line)

    async def _change(self, service: Service, verb: str, asked_by: str) -> None:
        name = service.unit.name
        match verb:
            case "start":
                self._release(service)
                if not self._is_gang_member(service):
                    await self._pod.units.start(name, asked_by=asked_by)
            case "stop":
                self._hold(service, asked_by)
                await self._pod.units.stop(name, asked_by=asked_by, reason="asked for")
                if service.state.sub_state is SubState.UNKILLABLE:
                    raise Refused(f"cannot stop {name}: {service.state.reason}")
            case "restart":
                await self._pod.units.restart(name, asked_by=asked_by, reason="asked for")
            case "reset-failed":
                service.reset_failed()
            case _:
                raise Refused(f"cannot {verb} a unit")

    def _check_alone(self, service: Service, verb: str, local: bool) -> None:
        """One rank of a gang cannot be restarted alone: the others would wait for it for ever (design 4)."""
        supervision = self._pod.supervision
        if supervision is None or not supervision.coordinated:
            return
        engine = supervision.engine
        if verb == "stop" and engine.unit.name in self._pod.units.held_up_by(service.unit.name):
            raise Refused(
                f"{engine.unit.name} goes down with {service.unit.name} (BindsTo, PartOf), and is one rank of a gang, "
                f"whose other ranks would hang: stop it first, podvisor stop --local {engine.unit.name}"
            )
        if not self._is_gang_member(service):
            return
        held = supervision.operator.state.held_by is not None
        if verb == "restart" or (verb == "start" and not held):
            raise Refused(f"{service.unit.name} is one rank of a gang: use `podvisor relaunch`")
        if verb == "stop" and not local:
            raise Refused(
                f"{service.unit.name} is one rank of a gang, whose other ranks would hang without it: "
                "stop it with --local if that is what you want"
            )

    def _is_gang_member(self, service: Service) -> bool:
        supervision = self._pod.supervision
        return supervision is not None and supervision.coordinated and service is supervision.engine.service

    def _hold(self, service: Service, by: str) -> None:
        supervision = self._pod.supervision
        if supervision is not None and service is supervision.engine.service:
            supervision.operator.feed(progress.Held(by))

    def _release(self, service: Service) -> None:
        """Of a gang's rank this is all: its absence is reported, and the controller relaunches the gang."""
        supervision = self._pod.supervision
        if supervision is not None and service is supervision.engine.service:
            supervision.operator.feed(progress.Released())

    def _service(self, name: str) -> Service:
        try:
            return self._pod.units.get(name)
        except units.NoSuchUnit as error:
            raise NoSuchUnit(str(error)) from error

    def _controller(self) -> str | None:
        if self.link is None:
            return None
        error = self.link.heartbeat.connection.last_error
        return f"controller {self.link.client.url} {'answers' if error is None else f'does not answer: {error}'}"
