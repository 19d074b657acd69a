"""In which keys two declarations of a unit differ, and what each of these takes to apply.

By the table of `keys.py`: whoever adds a key adds it here too, as one that takes a restart. What a reload makes of
the differences is decided in `reload.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from operator import attrgetter

import msgspec

from supervisor.unit.keys import LIVENESS_ACTION, SECTIONS, Key, Table
from supervisor.unit.model import ExecCheck, HttpCheck, LogLineCheck, TcpCheck, Unit
from supervisor.unit.structs import assign


class Takes(StrEnum):
    """What a changed key takes to apply."""

    NOTHING = "nothing"
    """It holds from now on; the unit's processes go on."""
    RESTART = "restart"
    """Only another process of the unit can have it."""


class KeyChange(msgspec.Struct, frozen=True):
    key: str
    """`Service.ExecStart`; the section alone where it has come or gone as a whole."""
    takes: Takes


IN_PLACE = (
    "description",
    "documentation",
    "dependencies",
    "conditions",
    "service.restart",
    "service.start",
    "service.stop",
    "service.watchdog_signal",
    "service.logging.rate_limit_interval_sec",
    "service.logging.rate_limit_burst",
    "service.logging.rotate_size",
    "service.logging.rotate_keep",
    "service.logging.tail_bytes",
    "probes.liveness_action",
)
"""Fields that are asked for whenever they are needed, so that a running unit can be given others."""

_CHECKS: Mapping[str, type[object]] = {"Http": HttpCheck, "Tcp": TcpCheck, "Exec": ExecCheck, "LogLine": LogLineCheck}
"""The keys that share the field `check`."""


def differences(before: Unit, after: Unit) -> tuple[KeyChange, ...]:
    """In the order of the table. Where the files lie is no difference."""
    return tuple(change for section in SECTIONS.values() for change in _in_section(section, before, after))


def with_in_place(before: Unit, after: Unit) -> Unit:
    """As `before`, with everything of `after` that takes no restart."""
    return assign(before, {target: attrgetter(target)(after) for target in IN_PLACE})


def takes(target: str) -> Takes:
    """`target` is a field of a unit, as `service.stop.kill_mode`."""
    in_place = any(target == each or target.startswith(f"{each}.") for each in IN_PLACE)
    return Takes.NOTHING if in_place else Takes.RESTART


def target_of(section: Table, entry: Key | Table) -> str:
    """The field that a key of a section sets, as seen from the unit."""
    if entry.target == LIVENESS_ACTION:
        return "probes.liveness_action"  # parse.py puts it beside the probe: it holds for the launcher's own, too
    return f"{section.target}.{entry.target}" if section.target else entry.target


def _in_section(section: Table, before: Unit, after: Unit) -> Iterator[KeyChange]:
    if section.target and (_field(before, section.target) is None) is not (_field(after, section.target) is None):
        yield KeyChange(section.name, Takes.RESTART)
        return
    for entry in section.entries.values():
        target = target_of(section, entry)
        if _exactly(_value(entry, target, before)) != _exactly(_value(entry, target, after)):
            yield KeyChange(f"{section.name}.{entry.name}", takes(target))


def _value(entry: Key | Table, target: str, unit: Unit) -> object:
    """What the unit has of this one key."""
    found = _field(unit, target)
    if isinstance(entry, Key) and entry.appends and isinstance(found, tuple):
        return tuple(item for item in found if f"Limit{item.name}" == entry.name)
    if target.endswith(".check") and entry.name in _CHECKS:
        return found if isinstance(found, _CHECKS[entry.name]) else None
    return found


def _field(unit: Unit, target: str) -> object:
    """None, too, where a struct on the way is missing."""
    found: object = unit
    for name in target.split("."):
        found = getattr(found, name, None)
    return found


def _exactly(value: object) -> object:
    """For comparing: to a flag of an engine, true is not 1, and a list that is repeated is not a list."""
    match value:
        case tuple() | list():
            return type(value), tuple(_exactly(item) for item in value)
        case dict():
            return tuple((name, _exactly(item)) for name, item in sorted(value.items()))
        case _:
            return type(value), value
