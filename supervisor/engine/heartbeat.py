"""Makes this supervisor known to the controller and keeps it informed: register, then heart-beat.

A source of state only: it decides nothing about engines, freezes or the end of the supervisor (seed S15, S17).
A heartbeat goes out every interval, and at once when what it says has changed. Whether the controller can be
reached changes nothing here but the back-off.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
import trio

from supervisor import wire
from supervisor.engine.controller_client import ControllerClient
from supervisor.engine.controller_errors import ControllerError, ControllerForgot, ControllerRefused
from supervisor.engine.model import progress
from supervisor.engine.model.instance_seen import ACTIVE, InstanceSeen, told
from supervisor.engine.operator import CommandRefused, Operator
from supervisor.engine.register_manager import RegisterManager
from supervisor.service.changes import Changes
from supervisor.shared.error_window import ErrorWindow

log = logging.getLogger(__name__)

MIN_GAP_SEC = 0.2
"""Two heartbeats are never closer, however fast things change."""
REPORT_FIRST_SEC = 0.5
"""So long a heartbeat waits for a death report that says the same with its cause."""
FIRST_RETRY_SEC = 1.0
MAX_RETRY_SEC = 30.0
SETTLING_SEC = 1.0
"""Between the heartbeats of a pod that serves in an instance that does not yet."""
LEAVING_SEC = 1.0
"""For the last heartbeat of an orderly stop."""


class Pulse(Protocol):
    """What the heartbeat says; read anew for each."""

    def heartbeat(self, sequence: int) -> wire.HeartbeatMsg: ...


class Drainable(Protocol):
    """What the controller may say of this pod's requests while a member of the instance leaves."""

    def begin(self, reason: str) -> None: ...

    def release(self) -> None: ...


class Connection:
    """Whether the controller answers, for people and for the start without a controller."""

    def __init__(self) -> None:
        self.registered = False
        self.last_error: str | None = "not registered yet"
        self.instance_id = 0
        self.instance = InstanceSeen()
        self.answered_at: float | None = None
        """When it last took something of ours, in trio time."""
        self.changed = Changes()

    @property
    def is_up(self) -> bool:
        return self.last_error is None

    def answers(self, now: float) -> None:
        self.last_error, self.answered_at = None, now
        self.changed.announce()

    def fails(self, error: str) -> None:
        self.last_error = error
        self.changed.announce()


class Heartbeat:
    def __init__(
        self,
        client: ControllerClient,
        registration: RegisterManager,
        operator: Operator,
        pulse: Pulse,
        changed: Changes,
        interval_sec: float,
        reports_first: Callable[[], Awaitable[None]],
        drain: Drainable,
    ) -> None:
        self.connection = Connection()
        self._client = client
        self._registration = registration
        self._operator = operator
        self._pulse = pulse
        self._changed = changed
        self._interval_sec = interval_sec
        self._reports_first = reports_first
        self._drain = drain
        self._beating = trio.CancelScope()
        self.introduced = trio.Event()
        """Once a controller has taken a registration in this boot."""
        self._sequence = 0
        self._taken = 0
        """Heartbeats that the controller took."""
        self._errors = ErrorWindow()

    async def run(self) -> None:
        """Until cancelled, or until `say_goodbye`; before an orderly end the controller is told by `leave`."""
        with self._beating:
            await self._beat_for_ever()

    async def _beat_for_ever(self) -> None:
        await self._introduce(self._introduce_again)
        while True:
            taken = self._taken
            try:
                await self._beat_while_known()
            except ControllerForgot as forgot:
                self.connection.registered = False
                if self._taken == taken:
                    # It took the registration and no heartbeat: at its pace, whatever it means by that.
                    self._lost(forgot)
                    await trio.sleep(self._interval_sec)
                await self._introduce(self._introduce_again)

    async def leave(self) -> None:
        """At the beginning of an orderly stop: routing ends before the engines do. Bounded, best effort."""
        await self._tell("leaves", self._message())

    async def say_goodbye(self) -> None:
        """The last heartbeat of an orderly stop: nothing runs here any more. Bounded, best effort."""
        # One that overtook it would be that of an unknown, who registers again.
        self._beating.cancel(reason="this supervisor has left")
        await self._tell("has left", msgspec.structs.replace(self._message(), gone=True))

    async def _tell(self, what: str, message: wire.HeartbeatMsg) -> None:
        if not self.connection.registered:
            return
        with trio.move_on_after(LEAVING_SEC):
            try:
                await self._client.heartbeat(message)
            except ControllerError as error:
                log.warning("cannot tell the controller that this supervisor %s: %s", what, error)

    async def _introduce(self, introduce: Callable[[], Awaitable[wire.RegisterAnswer]]) -> None:
        """Until the controller has taken it; for ever, since without it a gang cannot start (design 8)."""
        delay = FIRST_RETRY_SEC
        while True:
            try:
                answer = await introduce()
            except ControllerError as error:
                self._lost(error)
                await trio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(2 * delay, MAX_RETRY_SEC)
                continue
            self.connection.registered = True
            self.introduced.set()
            self.connection.answers(trio.current_time())
            self._errors.clear("controller")
            self._heard(None, answer.term)
            log.info("registered with %s", self._client.url, extra={"instance_id": answer.instance_id or None})
            return

    async def _register(self) -> wire.RegisterAnswer:
        return await self._client.register(self._registration.register_message(self._operator.state))

    async def _introduce_again(self) -> wire.RegisterAnswer:
        """A controller that restarted, or was not there when they began, adopts running engines; else it registers us.

        An engine may be started without it at any moment before it has answered; what it was told is then mended.
        """
        message = self._registration.reregister_message(self._operator.state, trio.current_time())
        if message is None:
            answer = await self._register()
            self._operator.feed(progress.ControllerFound())
            message = self._registration.reregister_message(self._operator.state, trio.current_time())
            if message is None:
                return answer
        try:
            answer = await self._client.reregister(message)
            self._operator.feed(progress.Adopted(answer.instance_id))
            return answer
        except ControllerRefused as refusal:
            if refusal.code != wire.ErrorCode.STALE_EPOCH:
                raise
            if self._operator.state.leaving is not None:
                # It will be in no other, and its engines are being stopped already.
                self._beating.cancel(reason="this supervisor leaves an instance that is over")
                await trio.sleep_forever()
            log.error("the controller has given up these engines (%s): stop them, register anew", refusal)
            await self._operator.abandon(str(refusal))
            return await self._register()

    async def _beat_while_known(self) -> None:
        while True:
            with trio.move_on_after(REPORT_FIRST_SEC):
                await self._reports_first()
            changed = self._changed.next()
            sent = self._message()
            await self._beat(sent)
            started = trio.current_time()
            await trio.sleep(MIN_GAP_SEC)
            with trio.move_on_at(started + self._pause_sec(sent)):
                while _news(self._pulse.heartbeat(sent.sequence)) == _news(sent):
                    await changed.wait()
                    changed = self._changed.next()

    def _pause_sec(self, sent: wire.HeartbeatMsg) -> float:
        """Who serves and waits for its instance to do so asks sooner: until then it is not ready."""
        waits = self.connection.instance.status not in (None, ACTIVE)
        serves = wire.EndpointStatus.NORMAL in sent.status.values()
        return min(self._interval_sec, SETTLING_SEC) if waits and serves else self._interval_sec

    async def _beat(self, message: wire.HeartbeatMsg) -> None:
        try:
            answer = await self._client.heartbeat(message)
        except ControllerForgot:
            raise
        except ControllerError as error:
            self._lost(error)
            return
        self._taken += 1
        self.connection.answers(trio.current_time())
        self.connection.instance_id = answer.instance_id
        self.connection.instance = told(self.connection.instance, answer.instance_status, message.epoch)
        self._errors.clear("controller")
        self._heard(answer.run_id, answer.term)
        if answer.drain is not None:
            self._drain.begin(answer.drain)
        if answer.released:
            self._drain.release()
        for order in answer.orders:
            await self._obey(order)

    def _message(self) -> wire.HeartbeatMsg:
        self._sequence += 1
        return self._pulse.heartbeat(self._sequence)

    def _heard(self, run_id: str | None, term: int) -> None:
        state = self._operator.state
        if run_id is not None or term > state.term:
            self._operator.feed(progress.ControllerHeard(run_id, term))

    async def _obey(self, order: wire.Order) -> None:
        """Orders in an answer are the same commands, checked in the same way (one-way partitions, design 4)."""
        command = _command_of(order)
        if command is None:
            return  # the next heartbeat is the status that was asked for; what a newer controller orders is not known
        try:
            await self._operator.command(command)
        except CommandRefused as refused:
            log.warning("order %s refused: %s", order.order, refused.message, extra={"run_id": order.run_id})

    def _lost(self, error: Exception) -> None:
        self.connection.fails(str(error))
        held_back = self._errors.admit("controller", trio.current_time())
        if held_back is not None:
            what = "refuses" if isinstance(error, ControllerRefused) else "does not answer"
            event = "controller-away" if self.introduced.is_set() else "waiting-for-controller"
            log.warning(
                "the controller %s: %s; units go on, retrying",
                what,
                error,
                extra={"event": event, "held_back": held_back},
            )


def _command_of(order: wire.Order) -> wire.EngineRestartMsg | wire.StopMsg | None:
    match order.order:
        case wire.OrderKind.ABORT:
            return wire.EngineRestartMsg(
                action=wire.Action.ABORT,
                term=order.term,
                run_id=order.run_id,
                boot_id=order.boot_id,
                reason=order.reason,
            )
        case wire.OrderKind.LEAVE:
            return wire.StopMsg(
                term=order.term, run_id=order.run_id, boot_id=order.boot_id, reason=order.reason or "ordered"
            )
        case _:
            return None


def _news(message: wire.HeartbeatMsg) -> tuple[object, ...]:
    """What must not wait for the next interval."""
    leaves = (message.leaving, message.drained)
    return (message.status, message.step, message.epoch, message.prepared, message.run_id, *leaves)
