"""What the supervisor says of its engine, to the controller, to the arbiter and to people; all from one judgement.

The node manager is the reference system's word for the supervisor's side of the controller's API. It holds no
state: the operation belongs to the operator, the process to the pod engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import trio
from msgspec.structs import replace

from supervisor import wire
from supervisor.engine.endpoint_engine import EndpointEngine
from supervisor.engine.model import progress
from supervisor.engine.model.arbiter import Situation
from supervisor.engine.model.commands import Command
from supervisor.engine.model.status import Judgement, judge
from supervisor.engine.operator import CommandRefused, Operator
from supervisor.engine.pod_engine import PodEngine
from supervisor.engine.register_manager import RegisterManager
from supervisor.wire import EndpointStatus, ErrorCode, Step


async def nothing_to_read() -> str:
    """Before the pod is put together."""
    raise CommandRefused(ErrorCode.BUSY, "this supervisor has just begun: ask again")


class NodeManager:
    def __init__(
        self, operator: Operator, engine: PodEngine, registration: RegisterManager, *, coordinated: bool
    ) -> None:
        self._operator = operator
        self._engine = engine
        self._registration = registration
        self._coordinated = coordinated
        self.read_files: Callable[[], Awaitable[str]] = nothing_to_read
        """Reload the unit files; the digest that the engine would have. Raises CommandRefused: nothing was changed."""
        self.dependencies_active = False
        """Kept by whoever watches the units: an engine that was never started is prepared once they are."""

    async def command(self, command: Command) -> wire.CommandAnswer:
        """See `Operator.command`. A reload is carried out beside the engine's operation."""
        answer = await self._operator.command(command)
        if isinstance(command, wire.EngineRestartMsg) and command.action is wire.Action.RELOAD:
            return replace(answer, config_digest=await self.read_files())
        return answer

    def heard(self, run_id: str | None) -> None:
        """The controller asked for our status."""
        self._operator.feed(progress.ControllerHeard(run_id, term=0))

    def pause(self, reason: str) -> wire.CommandAnswer:
        """Out of routing: the engine goes on with what it has. A relaunch ends it, and so does `resume`."""
        self._operator.feed(progress.Paused(reason))
        return self._answer()

    def resume(self) -> wire.CommandAnswer:
        self._operator.feed(progress.Resumed())
        return self._answer()

    @property
    def _identity(self) -> wire.SupervisorIdentity:
        return self._registration.identity

    def judgements(self) -> dict[int, Judgement]:
        """By endpoint id."""
        operation, now = self._operator.state, trio.current_time()
        return {each.id: judge(operation, each.facts(now), now) for each in self._engine.endpoints}

    def endpoint_status(self) -> EndpointStatus:
        """Of the pod as a whole: `normal` only if every endpoint is."""
        statuses = [judged.status for judged in self.judgements().values()]
        return next((status for status in statuses if status is not EndpointStatus.NORMAL), EndpointStatus.NORMAL)

    def situation(self) -> Situation:
        """What the arbiter sees. A standalone engine is its unit's business: its policy and start limit decide."""
        operation = self._operator.state
        judged = self.judgements() if self._coordinated else {}
        return Situation(
            counted=tuple(f"endpoint {id_}: {each.counted}" for id_, each in judged.items() if each.counted),
            generation=operation.serial,
            frozen=operation.frozen(trio.current_time()),
        )

    @property
    def prepared(self) -> bool:
        operation = self._operator.state
        if operation.step is Step.PREPARED:
            return True
        idle = operation.step in (Step.IDLE, Step.HELD) and not operation.ever_started
        return idle and self.dependencies_active

    def status(self) -> wire.NodeManagerStatus:
        operation, now = self._operator.state, trio.current_time()
        return wire.NodeManagerStatus(
            status=self.endpoint_status() is EndpointStatus.NORMAL,
            instance_id=operation.instance_id,
            epoch=operation.epoch,
            boot_id=operation.boot_id,
            term=operation.term,
            freeze_remaining_sec=round(operation.freeze_remaining(now), 3),
            relaunch_count=operation.relaunch_count,
            operation=wire.OperationView(
                step=operation.step,
                since=_at(operation.since, now),
                run_id=operation.run_id,
                epoch=operation.epoch,
                error=operation.error,
                category=operation.category,
            ),
            endpoints=tuple(self._endpoint(each, now) for each in self._engine.endpoints),
            prepared=self.prepared,
            config_digest=self._identity.config_digest,
            leaving=operation.leaving is not None,
            drained=operation.drained,
        )

    def heartbeat(self, sequence: int) -> wire.HeartbeatMsg:
        operation, now = self._operator.state, trio.current_time()
        identity = self._identity
        return wire.HeartbeatMsg(
            job_name=identity.job_name,
            # Prepared is not started: another controller may take it into another instance.
            ins_id=operation.instance_id if operation.ever_started else 0,
            ip=identity.pod_ip,
            status={str(id_): judged.status for id_, judged in self.judgements().items()},
            namespace=identity.namespace,
            nm_port=identity.nm_port,
            pod_uid=identity.pod_uid,
            epoch=operation.epoch,
            term=operation.term,
            boot_id=operation.boot_id,
            sequence=sequence,
            freeze_remaining_sec=round(operation.freeze_remaining(now), 3),
            relaunch_count=operation.relaunch_count,
            prepared=self.prepared,
            step=operation.step,
            run_id=operation.run_id,
            progress_age_sec=self._engine.progress_age_sec(now),
            config_digest=identity.config_digest,
            leaving=operation.leaving is not None,
            drained=operation.drained,
        )

    def _answer(self) -> wire.CommandAnswer:
        state = self._operator.state
        return wire.CommandAnswer(step=state.step, epoch=state.epoch, term=state.term, boot_id=state.boot_id)

    def _endpoint(self, endpoint: EndpointEngine, now: float) -> wire.EndpointView:
        state = endpoint.service.state
        return wire.EndpointView(
            id=endpoint.id,
            status=judge(self._operator.state, endpoint.facts(now), now).status,
            state=self._sub_state(endpoint),
            pid=state.pid,
            uptime_sec=round(now - state.spawned_at, 3) if state.pid is not None and state.spawned_at else None,
            progress_age_sec=endpoint.service.progress_age_sec(now),
        )

    def _sub_state(self, endpoint: EndpointEngine) -> str:
        """`prepared` and `held` are states of the operation: the unit itself is merely stopped."""
        step = self._operator.state.step
        return step if step in (Step.PREPARED, Step.CLEANING, Step.HELD) else endpoint.service.state.sub_state


def _at(moment: float, now: float) -> str:
    """The wall time of a moment of our own clock; for people only."""
    return wire.timestamp(datetime.now(UTC) - timedelta(seconds=now - moment))
