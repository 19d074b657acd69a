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

import trio

from supervisor import wire
from supervisor.engine.controller_client import ControllerClient
from supervisor.engine.controller_errors import ControllerError, ControllerForgot, ControllerRefused
from supervisor.engine.model import progress
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
LEAVING_SEC = 1.0
"""For the last heartbeat of an orderly stop."""


class Pulse(Protocol):
    """What the heartbeat says; read anew for each."""

    def heartbeat(self, sequence: int) -> wire.HeartbeatMsg: ...


class Connection:
    """Whether the controller answers, for people and for the start without a controller."""

    def __init__(self) -> None:
        self.registered = False
        self.last_error: str | None = "not registered yet"
        self.instance_id = 0
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
    ) -> None:
        self.connection = Connection()
        self._client = client
        self._registration = registration
        self._operator = operator
        self._pulse = pulse
        self._changed = changed
        self._interval_sec = interval_sec
        self._reports_first = reports_first
        self._sequence = 0
        self._taken = 0
        """Heartbeats that the controller took."""
        self._errors = ErrorWindow()

    async def run(self) -> None:
        """Until cancelled; the controller is told of an orderly end by `leave`."""
        await self._introduce(self._register)
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
        """The last heartbeat of an orderly stop: routing ends before the engines do. Bounded, best effort."""
        if not self.connection.registered:
            return
        with trio.move_on_after(LEAVING_SEC):
            try:
                await self._client.heartbeat(self._message())
            except ControllerError as error:
                log.warning("cannot tell the controller that this supervisor leaves: %s", error)

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
            self.connection.answers(trio.current_time())
            self._errors.clear("controller")
            self._heard(None, answer.term)
            log.info("registered with %s", self._client.url, extra={"instance_id": answer.instance_id or None})
            return

    async def _register(self) -> wire.RegisterAnswer:
        return await self._client.register(self._registration.register_message())

    async def _introduce_again(self) -> wire.RegisterAnswer:
        """A controller that restarted adopts running engines; one that never saw any just registers us."""
        message = self._registration.reregister_message(self._operator.state, trio.current_time())
        if message is None:
            return await self._register()
        try:
            return await self._client.reregister(message)
        except ControllerRefused as refusal:
            if refusal.code != wire.ErrorCode.STALE_EPOCH:
                raise
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
            with trio.move_on_at(started + self._interval_sec):
                while _news(self._pulse.heartbeat(sent.sequence)) == _news(sent):
                    await changed.wait()
                    changed = self._changed.next()

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
        self._errors.clear("controller")
        self._heard(answer.run_id, answer.term)
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
            return  # the next heartbeat is the status that was asked for
        try:
            await self._operator.command(command)
        except CommandRefused as refused:
            log.warning("order %s refused: %s", order.order, refused.message, extra={"run_id": order.run_id})

    def _lost(self, error: Exception) -> None:
        self.connection.fails(str(error))
        held_back = self._errors.admit("controller", trio.current_time())
        if held_back is not None:
            what = "refuses" if isinstance(error, ControllerRefused) else "does not answer"
            log.warning("the controller %s: %s; units go on, retrying", what, error, extra={"held_back": held_back})


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
        case wire.OrderKind.STATUS:
            return None


def _news(message: wire.HeartbeatMsg) -> tuple[object, ...]:
    """What must not wait for the next interval."""
    return (message.status, message.step, message.epoch, message.prepared, message.leaving, message.run_id)
