"""A value as a file would say it: only a spelling that the key itself reads back as that value is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from generators.markdown import code
from supervisor.unit.quantities import format_duration
from supervisor.unit.values import UnexpectedValue, shown

NOT_SET = "–"
_SIZES = (("GB", 10**9), ("GiB", 2**30), ("MB", 10**6), ("MiB", 2**20), ("KB", 10**3), ("KiB", 2**10))


def as_written(convert: Callable[[object], object], value: object) -> str:
    """Raise ValueError if no spelling is known that reads back."""
    if value is None:
        return NOT_SET
    for spelling in _spellings(value):
        try:
            read = convert(spelling)
        except UnexpectedValue:
            continue
        if read == value:
            return NOT_SET if spelling in ([], {}, "") else code(shown(spelling))
    if value in ((), ""):
        return NOT_SET
    raise ValueError(f"no spelling known for {value!r}")


def _spellings(value: object) -> Iterator[object]:
    """The shortest that people write, first."""
    match value:
        case tuple():
            yield []
            yield {}
            yield "-".join(str(item) for item in value)  # a range
            yield ["-".join(str(end) for end in item) if isinstance(item, tuple) else item for item in value]
        case Enum():
            yield str(value)
        case bool():
            yield value
        case float():
            yield format_duration(value)
            yield int(value) if value.is_integer() else value
        case int():
            yield from (f"{value // size}{unit}" for unit, size in _SIZES if value and value % size == 0)
            yield value
        case _:
            yield value
