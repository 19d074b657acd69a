"""What a store keeps, as bytes and back; pure, and the same for every store.

The structs carry monotonic times, which mean nothing to another process. So they are shifted to UTC when they
are written, and back, once, when they are loaded: a time of the future, by a clock that was set back, becomes
now, and what was left of a deadline is never more than it was.

What members said of themselves is not kept: it is old when it is read. A loaded member counts as heard of
just then, so that no silence counts before a full time-out of this life has passed.

A body may gain fields that have a default, and lose fields: readers ignore what they do not know. Anything
else is another VERSION.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import msgspec

from controller.events import ControllerEvent
from controller.model.budget import Budget
from controller.model.instance import Instance, kept
from controller.model.relaunch.run import RunRecord

VERSION = 1

T = TypeVar("T")


class CannotDecode(ValueError):
    """Bytes that are not what they should be, or of a later version."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Both at one moment, in seconds."""

    monotonic: float
    utc: float

    @property
    def ahead(self) -> float:
        """Of UTC before the monotonic clock."""
        return self.utc - self.monotonic


class _Kept(msgspec.Struct, Generic[T], frozen=True):
    version: int
    written_at: float
    """UTC, seconds."""
    value: T


class _Version(msgspec.Struct, frozen=True):
    version: int


def encode_instance(instance: Instance, clocks: Clocks) -> bytes:
    return _encode(_shift_instance(kept(instance), clocks.ahead), clocks)


def decode_instance(body: bytes, clocks: Clocks) -> Instance:
    """Raises CannotDecode."""
    instance = _shift_instance(_decode(_Kept[Instance], body).value, -clocks.ahead, latest=clocks.monotonic)
    members = tuple(replace(member, registered_at=clocks.monotonic) for member in instance.members)
    return replace(instance, members=members)


def encode_run(record: RunRecord, clocks: Clocks) -> bytes:
    return _encode(_shift_run(record, clocks.ahead), clocks)


def decode_run(body: bytes, clocks: Clocks) -> RunRecord:
    """Raises CannotDecode."""
    found = _decode(_Kept[RunRecord], body)
    record = _shift_run(found.value, -clocks.ahead, latest=clocks.monotonic)
    passed = max(0.0, clocks.utc - found.written_at)
    return replace(record, remaining_sec=max(0.0, record.remaining_sec - passed))


def encode_budget(budget: Budget, clocks: Clocks) -> bytes:
    return _encode(budget, clocks)


def decode_budget(body: bytes) -> Budget:
    """Raises CannotDecode."""
    return _decode(_Kept[Budget], body).value


def encode_event(event: ControllerEvent, clocks: Clocks) -> bytes:
    return _encode(event, clocks)


def decode_event(body: bytes) -> ControllerEvent:
    """Raises CannotDecode."""
    return _decode(_Kept[ControllerEvent], body).value


def _encode(value: object, clocks: Clocks) -> bytes:
    return msgspec.json.encode(_Kept(VERSION, clocks.utc, value))


def _decode(expected: type[_Kept[T]], body: bytes) -> _Kept[T]:
    try:
        version = msgspec.json.decode(body, type=_Version).version
        if version > VERSION:
            raise CannotDecode(f"it is of version {version}, this program knows {VERSION} at most")
        return msgspec.json.decode(body, type=expected)
    except msgspec.MsgspecError as error:
        raise CannotDecode(str(error)) from error


def _shift_instance(instance: Instance, by: float, latest: float = float("inf")) -> Instance:
    return replace(
        instance,
        members=tuple(
            replace(member, registered_at=min(member.registered_at + by, latest)) for member in instance.members
        ),
        since=min(instance.since + by, latest),
        abandoned_at=min(instance.abandoned_at + by, latest),
        last_registration_at=min(instance.last_registration_at + by, latest),
    )


def _shift_run(record: RunRecord, by: float, latest: float = float("inf")) -> RunRecord:
    history = tuple(
        replace(
            step,
            started_at=min(step.started_at + by, latest),
            ended_at=None if step.ended_at is None else min(step.ended_at + by, latest),
        )
        for step in record.history
    )
    return replace(record, opened_at=min(record.opened_at + by, latest), history=history)
