"""What operators can ask of a pod, carried out on its units (`api/operations.py` is the HTTP side)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from signal import Signals
from typing import TYPE_CHECKING, TypeVar

import trio
from msgspec.structs import replace

from supervisor import wire
from supervisor.api.operations import ControllerAway, NoSuchUnit, Refused, WrongFiles
from supervisor.engine.controller_errors import ControllerError, ControllerUnreachable
from supervisor.engine.model import progress
from supervisor.engine.model.operation import Operation
from supervisor.engine.model.progress import RelaunchedLocally
from supervisor.engine.relaunch_request import NotTaken
from supervisor.engine.supervision import CannotPlace
from supervisor.pod import Pod
from supervisor.process.tail import Follower, Gap, Line, Tail, follow, merged
from supervisor.reload import ReloadRefused
from supervisor.service import units
from supervisor.service.outcomes import StartFailed
from supervisor.service.service import Service
from supervisor.shared.event_ring import EventRing
from supervisor.unit.errors import ConfigurationError
from supervisor.unit.states import SubState
from supervisor.unit_views import graph_view, problems_body, reload_view

if TYPE_CHECKING:
    from supervisor.engine.controller_client import ControllerClient
    from supervisor.engine.link import ControllerLink

log = logging.getLogger(__name__)

GANG_VERBS = frozenset({"start", "stop", "restart"})
GANG_SEC = 90.0
"""Below the time that `podvisor` waits for an answer."""

Answer = TypeVar("Answer")


class PodOperations:
    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self.link: ControllerLink | None = None
        """Set once the controller can be spoken to."""

    @property
    def events(self) -> EventRing[wire.SupervisorEvent]:
        return self._pod.events.ring

    def overview(self) -> wire.UnitsView:
        now = trio.current_time()
        return wire.UnitsView(
            units=self._pod.units.views(now), supervisor=self._pod.supervisor_view(self._controller())
        )

    def unit(self, name: str) -> wire.UnitView:
        return self._service(name).view(trio.current_time())

    def exits(self, name: str) -> wire.ExitsView:
        return _exits(self._service(name))

    def all_exits(self) -> wire.AllExitsView:
        return wire.AllExitsView(units=tuple(map(_exits, self._pod.units)))

    async def change(self, name: str, verb: str, *, asked_by: str, local: bool) -> wire.UnitView:
        """One rank cannot be changed alone: without `local` that is asked of the gang, through the controller.

        Raises NoSuchUnit, Refused, ControllerAway. Cancelled: what was asked for goes on.
        """
        service = self._service(name)
        if verb in ("start", "restart"):
            self._check_stays(service, verb)
        if verb in GANG_VERBS and not local and self._concerns_the_gang(service, verb):
            done = await self._change_gang(verb, name, f"asked for by {asked_by} at {name}")
            return replace(service.view(trio.current_time()), message=done)
        await self._check_gang_along(service, verb)
        try:
            await self._change(service, verb, asked_by)
        except StartFailed as failure:
            raise Refused(f"cannot {verb} {name}: {failure}") from failure
        return service.view(trio.current_time())

    async def start_standalone(self, name: str, *, asked_by: str) -> wire.UnitView:
        """Start this pod's engine where the settings place it, because there is no controller.

        Returns when its process runs. Raises NoSuchUnit, Refused. Cancelled: the start goes on.
        """
        service, supervision = self._service(name), self._pod.supervision
        if supervision is None or not self._is_gang_member(service):
            raise Refused(f"{name} needs no controller: start it without --standalone")
        self._check_stays(service, "start")
        if self.link is not None and self.link.heartbeat.connection.registered:
            raise Refused("the controller knows this pod and starts its engine itself")
        if supervision.operator.state.step is not wire.Step.IDLE:
            raise Refused(f"{name} was started already: `podvisor status` shows how far it is")
        try:
            supervision.start_alone(f"asked for by {asked_by}")
        except CannotPlace as error:
            raise Refused(f"cannot start {name}: {error}") from error
        state = await supervision.operator.changed.wait_until(lambda: supervision.operator.state, _is_started_or_not)
        if state.step is not wire.Step.LOADING and state.step is not wire.Step.DONE:
            raise Refused(f"cannot start {name}: {state.error or 'the controller has come, and starts it itself'}")
        return service.view(trio.current_time())

    async def relaunch(self, asked_by: str) -> wire.RelaunchBegun:
        supervision = self._pod.supervision
        if supervision is None:
            raise Refused("there is no engine unit in this pod")
        if not supervision.coordinated:
            self._check_stays(supervision.engine.services[0], "relaunch")
            if any(endpoint.restoring for endpoint in supervision.engine.endpoints):
                raise Refused(f"a snapshot of {supervision.engine.name} is being restored: ask again when it is ready")
            try:
                reason = f"relaunch {supervision.operator.state.relaunch_count + 1}"
                supervision.operator.feed(RelaunchedLocally())
                async with trio.open_nursery() as nursery:
                    for service in supervision.engine.services:
                        name = service.unit.name
                        nursery.start_soon(partial(self._pod.units.restart, name, asked_by=asked_by, reason=reason))
            except* StartFailed as failures:
                why = "; ".join(str(failure) for failure in failures.exceptions)
                raise Refused(f"cannot relaunch {supervision.engine.name}: {why}") from failures
            return wire.RelaunchBegun(message="the engine was relaunched here")
        run = await self.relaunch_gang(f"asked for by {asked_by}")
        return wire.RelaunchBegun(
            message=f"run {run.id} relaunches instance {run.instance_id}; `podvisor relaunches {run.id}` shows it",
            run_id=run.id,
        )

    async def relaunch_gang(self, reason: str) -> wire.RunView:
        """The run that the controller has begun. Raises Refused, ControllerAway; then nothing was done."""
        return await self._asked(lambda client, instance_id: client.relaunch(instance_id, reason))

    async def _asked(self, ask: Callable[[ControllerClient, int], Awaitable[Answer]]) -> Answer:
        """Something of the instance that this pod belongs to."""
        supervision, link = self._pod.supervision, self.link
        if link is None or supervision is None:
            raise Refused("the controller cannot be spoken to yet: nothing was done")
        instance_id = supervision.operator.state.instance_id or link.heartbeat.connection.instance_id
        if not instance_id:
            raise Refused("this pod belongs to no instance yet: the controller has not started it")
        try:
            return await ask(link.client, instance_id)
        except ControllerUnreachable as error:
            raise ControllerAway(f"cannot reach the controller: {error}; nothing was done") from error
        except ControllerError as error:
            raise Refused(f"the controller did not take it: {error}; nothing was done") from error

    async def _change_gang(self, verb: str, name: str, reason: str) -> str:
        """What was done, and what undoes it. Returns once it is done here, or GANG_SEC later: what was asked for goes
        on."""
        supervision = self._pod.supervision
        assert supervision is not None, "there is a gang"
        operator, before, done = supervision.operator, supervision.operator.state, ""
        match verb:
            case "stop":
                done = _held(await self._asked(lambda client, instance_id: client.hold(instance_id, reason)), name)
            case "start":
                await self._asked(lambda client, instance_id: client.release(instance_id, reason))
            case "restart":
                await self._asked(lambda client, instance_id: client.relaunch(instance_id, reason))
        with trio.move_on_after(GANG_SEC):
            await operator.changed.wait_until(lambda: operator.state, lambda state: is_done(verb, before, state))
        return done

    async def ask_for_relaunch(self, reason: str) -> None:
        """For what cannot be done to one rank alone. Raises NotTaken."""
        try:
            await self.relaunch_gang(reason)
        except (Refused, ControllerAway) as refusal:
            raise NotTaken(str(refusal)) from refusal

    async def reload(self, asked_by: str, *, dry_run: bool) -> wire.ReloadView:
        """Raises Refused while another one is carried out or the pod leaves, WrongFiles."""
        reloads = self._pod.reloads
        try:
            outcome = await (reloads.preview() if dry_run else reloads.reload(asked_by))
        except ReloadRefused as refused:
            raise Refused(str(refused)) from refused
        except ConfigurationError as error:
            raise WrongFiles(problems_body(error.problems)) from error
        return reload_view(outcome, dry_run=dry_run)

    def graph(self) -> wire.GraphView:
        states = {service.unit.name: service.state.state for service in self._pod.units}
        return graph_view([service.unit for service in self._pod.units], states)

    async def drain(self, asked_by: str) -> wire.Drained:
        """Returns when the engines have finished their requests. Cancelled: the drain goes on."""
        if not self._pod.supervisions:
            return wire.Drained(message="there is no engine unit in this pod: nothing to drain")
        await self._pod.drain(f"asked for by {asked_by}")
        engines = [service for each in self._pod.supervisions.values() for service in each.engine.services]
        states = ", ".join(f"{service.unit.name} is {service.state.state}" for service in engines)
        return wire.Drained(message=f"drained; {states}")

    def lines(self, names: Sequence[str], count: int) -> list[wire.LogLine]:
        return [_shown(line) for line in merged([tail.newest(count) for tail in self._tails(names)])]

    def lines_of_life(self, names: Sequence[str], count: int) -> list[wire.LogLine]:
        return [_shown(line) for line in merged([tail.newest_of_life(count) for tail in self._tails(names)])]

    def follow(self, names: Sequence[str], backlog: Sequence[wire.LogLine]) -> AsyncIterator[wire.LogLine]:
        """What comes from this moment on, not from when it is first read."""
        return _following(follow(self._tails(names)), backlog)

    async def kill(self, name: str, signal: str, whom: wire.Whom, *, asked_by: str) -> wire.KillAnswer:
        """Raises NoSuchUnit, Refused. What the unit's policy makes of it is as if it had been sent by a stranger."""
        service = self._service(name)
        try:
            pids = await service.kill(Signals[signal], whom)
        except PermissionError as error:
            raise Refused(f"cannot signal {name}: {error.strerror}; it runs as another user") from error
        if not pids:
            raise Refused(f"cannot signal {name}: it has no process; it is {service.state.sub_state}")
        log.info("%s sent to %s of %s by %s", signal, whom, name, asked_by, extra={"unit": name, "pids": pids})
        return wire.KillAnswer(unit=name, signal=signal, pids=pids)

    async def _change(self, service: Service, verb: str, asked_by: str) -> None:
        name = service.unit.name
        match verb:
            case "start":
                self._release(service)
                if not self._is_gang_member(service):
                    await self._pod.units.start(name, asked_by=asked_by)
            case "stop":
                self._hold(service, asked_by)
                await self._pod.units.stop(name, asked_by=asked_by, reason="")
                if service.state.sub_state is SubState.UNKILLABLE:
                    raise Refused(f"cannot stop {name}: {service.state.reason}")
            case "restart" if self._is_gang_member(service):
                # Its absence is reported like a death: the controller relaunches the gang.
                await self._change(service, "stop", asked_by)
                await self._change(service, "start", asked_by)
            case "restart":
                await self._pod.units.restart(name, asked_by=asked_by, reason="restart")
            case "reset-failed":
                service.reset_failed()
            case _:
                raise Refused(f"cannot {verb} a unit")

    def _check_stays(self, service: Service, verb: str) -> None:
        """Raise Refused for an engine whose pod leaves: it would serve nobody, since the pod is no longer ready."""
        supervision = self._pod.supervision_of(service)
        leaving = supervision.operator.state.leaving if supervision is not None else None
        if leaving is not None:
            raise Refused(
                f"cannot {verb} {service.unit.name}: this pod leaves ({leaving}), which is not taken back; "
                "end its container or delete the pod: what comes in its place serves"
            )

    def _concerns_the_gang(self, service: Service, verb: str) -> bool:
        """What was stopped here alone is started here alone."""
        gang = self._pod.supervision
        if gang is None or not gang.coordinated or self._pod.supervision_of(service) is not gang:
            return False
        return verb != "start" or _number(service) not in gang.operator.state.held

    async def _check_gang_along(self, service: Service, verb: str) -> None:
        """What takes a rank of the gang with it (design 4). Raises Refused, ControllerAway."""
        gang = self._pod.supervision
        if gang is None or not gang.coordinated:
            return
        if self._pod.supervision_of(service) is gang:
            if verb == "start" and _number(service) not in gang.operator.state.held:
                raise Refused(f"{service.unit.name} was not stopped here alone: start it without --local")
            return
        if verb == "stop" and (ranks := _among(gang.engine.services, self._pod.units.stopped_with(service.unit.name))):
            raise Refused(
                f"{', '.join(ranks)} goes down with {service.unit.name} (Requires, BindsTo, PartOf), and is one rank "
                f"of a gang, whose other ranks would hang: stop it first, podvisor stop {ranks[0]}"
            )
        if verb == "restart" and _among(gang.engine.services, self._pod.units.held_up_by(service.unit.name)):
            await self._asked(lambda client, instance_id: client.instance(instance_id))

    def _is_gang_member(self, service: Service) -> bool:
        supervision = self._pod.supervision_of(service)
        return supervision is not None and supervision.coordinated

    def _hold(self, service: Service, by: str) -> None:
        supervision = self._pod.supervision_of(service)
        if supervision is not None:
            supervision.operator.feed(progress.Held(by, _number(service)))

    def _release(self, service: Service) -> None:
        """Of a gang's rank this is all: its absence is reported, and the controller relaunches the gang.

        A standalone engine is released by its next start, whoever has asked for that.
        """
        supervision = self._pod.supervision_of(service)
        if supervision is not None and supervision.coordinated:
            supervision.operator.feed(progress.Released(_number(service)))

    def _tails(self, names: Sequence[str]) -> list[Tail]:
        services = [self._service(name) for name in names] or list(self._pod.units)
        return [service.output.tail for service in services]

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


def _number(service: Service) -> int:
    engine = service.unit.engine
    return engine.endpoint_number if engine is not None else 0


def _held(instance: wire.InstanceView, name: str) -> str:
    pods, whose = len(instance.supervisors), f"{instance.namespace}/{instance.job_name}"
    where = f"all {pods} pods" if pods > 1 else "the one pod"
    return f"held in {where} of {whose}: `podvisor start {name}` or `podvisor release {whose}` ends that"


def is_done(verb: str, before: Operation, state: Operation) -> bool:
    """Whether what was asked of the gang is done in this pod."""
    if state.leaving is not None or state.step in (wire.Step.FAILED, wire.Step.ABORTED):
        return True
    if verb == "stop":
        return state.step is wire.Step.HELD or (state.step is wire.Step.IDLE and not state.ever_started)
    runs = state.step in (wire.Step.LOADING, wire.Step.DONE)
    return runs and (verb == "start" or state.epoch > before.epoch)


async def _following(follower: Follower, backlog: Sequence[wire.LogLine]) -> AsyncIterator[wire.LogLine]:
    for line in backlog:
        yield line
    while True:
        read = await follower.next()
        yield _shown(read) if isinstance(read, Line) else _missing(read)


def _exits(service: Service) -> wire.ExitsView:
    return wire.ExitsView(unit=service.unit.name, exits=service.exits.views)


def _shown(line: Line) -> wire.LogLine:
    time = wire.timestamp(datetime.fromtimestamp(line.at, UTC))
    return wire.LogLine(time=time, unit=line.unit, stream=line.stream, text=line.text, invocation=line.invocation)


def _missing(gap: Gap) -> wire.LogLine:
    now = wire.timestamp(datetime.now(UTC))
    return wire.LogLine(time=now, unit="", stream="podvisor", text=str(gap), lost_lines=gap.lost_lines)


def _is_started_or_not(state: Operation) -> bool:
    return state.step in (wire.Step.IDLE, wire.Step.LOADING, wire.Step.DONE, wire.Step.FAILED, wire.Step.ABORTED)


def _among(ranks: Sequence[Service], names: Collection[str]) -> list[str]:
    return [rank.unit.name for rank in ranks if rank.unit.name in names]
