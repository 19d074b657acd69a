"""What happens in this pod, as events: the one place where they are made, out of what observers are told.

Nobody else appends: units, the engine's operation, the arbiter, the outputs and the link to the controller do not
know that there are events. `GET /v1/events` reads the ring; the log has its own lines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

import trio
from msgspec.structs import replace

from supervisor.ending import Ending
from supervisor.engine.model.operation import Action, Operation, Report
from supervisor.process.drops import Drop
from supervisor.service import transition_log
from supervisor.service.changes import Changes
from supervisor.service.exits import ExitRecord
from supervisor.service.outcomes import Transition
from supervisor.shared.error_window import ErrorWindow
from supervisor.shared.event_ring import EventRing
from supervisor.unit.restart import Result
from supervisor.version import VERSION
from supervisor.wire import EventKind, SupervisorEvent, timestamp


class Connection(Protocol):
    """`supervisor.engine.heartbeat.Connection`, as it is seen from here."""

    @property
    def last_error(self) -> str | None: ...

    @property
    def changed(self) -> Changes: ...


class PodEvents:
    """One per pod. Make it inside trio."""

    def __init__(self, arbiter_threshold: int) -> None:
        self.ring: EventRing[SupervisorEvent] = EventRing(_gap)
        self._arbiter_threshold = arbiter_threshold
        self._drops = ErrorWindow()
        self._untold: dict[tuple[str, str], Drop] = {}
        """What each stream has lost since the last event about it."""
        self._tell(EventKind.SUPERVISOR, f"podvisor {VERSION} starts")

    # --- observers -----------------------------------------------------------------------------------------------

    def unit_moved(self, transition: Transition) -> None:
        if transition.exit is not None:
            self._ended(transition.unit, transition.exit)
        if not transition_log.is_move(transition):
            return
        after = transition.after
        self._tell(
            EventKind.UNIT,
            transition_log.words(transition),
            logging.getLevelName(transition_log.level_of(transition)).lower(),
            unit=transition.unit,
            previous=transition.before.sub_state,
            sub_state=after.sub_state,
            state=after.state,
            reason=after.reason,
            pid=after.pid,
            epoch=transition.epoch,
        )

    def operation_moved(self, before: Operation, after: Operation, actions: tuple[Action, ...]) -> None:
        known: dict[str, Any] = {
            "epoch": after.epoch or None,
            "run_id": after.run_id,
            "instance_id": after.instance_id or None,
        }
        if after.step is not before.step:
            failed = after.error if after.step in ("failed", "aborted") else None
            self._tell(
                EventKind.RELAUNCH,
                f"engine {before.step} -> {after.step}" + (f": {failed}" if failed else ""),
                "error" if failed else "info",
                previous_step=before.step,
                step=after.step,
                lasted_sec=round(after.since - before.since, 3),
                reason=failed or after.reason or None,
                **known,
            )
        self._frozen(before, after, known)
        for action in actions:
            if isinstance(action, Report):
                self._tell(EventKind.ENGINE, action.message, action.level, step=after.step, **known)

    def arbiter_counted(self, count: int, counted: Sequence[str]) -> None:
        why = "; ".join(counted)
        if count:
            message = f"abnormal: {count} of {self._arbiter_threshold} ticks until this container restarts: {why}"
        else:
            message = "the arbiter's count begins anew"
        level = "warning" if count else "info"
        self._tell(EventKind.ARBITER, message, level, arbiter_count=count, reason=why or None)

    def output_dropped(self, drop: Drop) -> None:
        """As a rate-limited line: a reader that is too slow would make thousands of these."""
        stream = (drop.unit, drop.stream)
        before = self._untold.get(stream)
        if before is not None:
            lost, suppressed = before.lost_bytes + drop.lost_bytes, before.suppressed_lines + drop.suppressed_lines
            drop = replace(drop, lost_bytes=lost, suppressed_lines=suppressed)
        held_back = self._drops.admit("/".join(stream), trio.current_time())
        if held_back is None:
            self._untold[stream] = drop
            return
        self._untold.pop(stream, None)
        self._tell(
            EventKind.OUTPUT,
            f"{drop.stream} of {drop.unit}: {_dropped(drop)}",
            "warning",
            unit=drop.unit,
            stream=drop.stream,
            lost_bytes=drop.lost_bytes or None,
            suppressed_lines=drop.suppressed_lines or None,
            held_back=held_back or None,
        )

    # --- watches -------------------------------------------------------------------------------------------------

    async def watch_controller(self, connection: Connection, url: Callable[[], str]) -> None:
        """Until cancelled. What is mended before anybody looks is no event."""
        answered: bool | None = None
        while True:
            changed = connection.changed.next()
            error = connection.last_error
            if answered is None and error is not None:
                answered = False
                self._tell(EventKind.CONTROLLER, f"waiting for the controller {url()}", reason=error)
            elif answered is not (error is None):
                answered = error is None
                self._controller(url(), error)
            await changed.wait()

    async def watch_ending(self, ending: Ending) -> None:
        await ending.requested.wait()
        message = f"ending with exit code {ending.exit_code}: {ending.reason}"
        level = "info" if ending.is_orderly else "warning"
        self._tell(EventKind.SUPERVISOR, message, level, exit_code=ending.exit_code, reason=ending.reason)

    # --- events --------------------------------------------------------------------------------------------------

    def _ended(self, unit: str, record: ExitRecord) -> None:
        view = replace(record.view, log_tail=(), diagnosis=())
        self._tell(
            EventKind.EXIT,
            f"{unit}: {view.cause} after {view.uptime_sec:.1f} s",
            "info" if view.asked or record.ending.result is Result.SUCCESS else "warning",
            unit=unit,
            pid=view.pid or None,
            reason=view.cause,
            exit=view,
            epoch=view.epoch,
        )

    def _frozen(self, before: Operation, after: Operation, known: dict[str, Any]) -> None:
        old, new = before.freeze, after.freeze
        if (old is None) is (new is None) and (old is None or new is None or old.deadline == new.deadline):
            return
        remaining = round(after.freeze_remaining(trio.current_time()), 3)
        if new is None:
            message = f"unfrozen while {after.step}"
        else:
            message = f"{'frozen' if old is None else 'freeze extended'}: ends in {remaining:g} s at the latest"
        self._tell(EventKind.FREEZE, message, step=after.step, freeze_remaining_sec=remaining, **known)

    def _controller(self, url: str, error: str | None) -> None:
        if error is None:
            self._tell(EventKind.CONTROLLER, f"the controller {url} answers")
        else:
            self._tell(EventKind.CONTROLLER, f"the controller {url} does not answer: {error}", "warning", reason=error)

    def _tell(self, kind: EventKind, message: str, level: str = "info", **fields: Any) -> None:
        self.ring.append(partial(_event, kind, message, level, fields))


def _event(kind: EventKind, message: str, level: str, fields: dict[str, Any], number: int) -> SupervisorEvent:
    return SupervisorEvent(
        id=number, at=timestamp(datetime.now(UTC)), kind=kind, level=level, message=message, **fields
    )


def _gap(first: int, last: int) -> SupervisorEvent:
    return _event(EventKind.GAP, f"events {first} to {last} are no longer kept", "warning", {}, last)


def _dropped(drop: Drop) -> str:
    lost = [f"{drop.lost_bytes} bytes could not be written in time"] if drop.lost_bytes else []
    if drop.suppressed_lines:
        lost.append(f"{drop.suppressed_lines} lines were more than LogRateLimitBurst in an interval")
    return "; ".join(lost)
