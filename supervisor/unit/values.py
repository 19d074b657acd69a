"""Converters: one TOML value -> one typed value, or an error that says what was found and what is expected.

Here are the frame and the plain values; durations and sizes are in `quantities.py`, what describes a process
in `process_values.py`, what describes a probe in `probe_values.py`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class Mismatch(ValueError):
    """Raised by a reader: this value will not do; the text, if any, says why beyond what is expected."""


UNREADABLE = (ValueError, OverflowError, RecursionError)
"""What a reader raises of what will not do: Mismatch, or what `int`, `float` and their like raise of odd text."""


class UnexpectedValue(ValueError):
    """`found …, expected …`: what a person sees."""


class Converter(msgspec.Struct, Generic[T_co], frozen=True):
    """Turns what a file holds into what the program uses."""

    expected: str
    """Completes `expected …`, and is the type column of the reference documentation."""
    read: Callable[[object], T_co]
    """Raises one of UNREADABLE."""
    schema: Mapping[str, object] = msgspec.field(default_factory=dict)
    """The same for editors, as JSON Schema."""

    def __call__(self, found: object) -> T_co:
        """Raise UnexpectedValue."""
        try:
            return self.read(found)
        except Mismatch as mismatch:
            reason = f" ({mismatch})" if str(mismatch) else ""
        except UNREADABLE:
            reason = ""
        raise UnexpectedValue(f"found {shown(found)}, expected {self.expected}{reason}")


def shown(found: object) -> str:
    """A value as its file would write it, cut to a readable length."""
    match found:
        case bool():
            text = str(found).lower()
        case str():
            text = json.dumps(found, ensure_ascii=False)
        case list():
            text = "[" + ", ".join(shown(item) for item in found) + "]"
        case dict():
            text = "a table" if found else "an empty table"
        case _:
            text = str(found)
    return text if len(text) <= 80 else text[:79] + "…"


def _read_text(found: object) -> str:
    if not isinstance(found, str) or "\0" in found:
        raise Mismatch
    return found


def _read_word(found: object) -> str:
    if not _read_text(found).strip():
        raise Mismatch
    return _read_text(found)


def _read_boolean(found: object) -> bool:
    if not isinstance(found, bool):
        raise Mismatch
    return found


text = Converter("a string", _read_text, {"type": "string"})
word = Converter("a string that is not empty", _read_word, {"type": "string", "minLength": 1})
boolean = Converter("true or false", _read_boolean, {"type": "boolean"})


def integer(minimum: int | None = None, maximum: int | None = None) -> Converter[int]:
    """Bounds are inclusive; None is none."""

    def read(found: object) -> int:
        if isinstance(found, bool) or not isinstance(found, int):
            raise Mismatch
        if (minimum is not None and found < minimum) or (maximum is not None and found > maximum):
            raise Mismatch
        return found

    return Converter(f"a whole number{_range(minimum, maximum)}", read, _bounds("integer", minimum, maximum))


def number(minimum: float | None = None, maximum: float | None = None) -> Converter[float]:
    """A plain number without a unit; bounds are inclusive."""

    def read(found: object) -> float:
        if isinstance(found, bool) or not isinstance(found, int | float) or math.isnan(found):
            raise Mismatch
        if (minimum is not None and found < minimum) or (maximum is not None and found > maximum):
            raise Mismatch
        return float(found)

    return Converter(f"a number{_range(minimum, maximum)}", read, _bounds("number", minimum, maximum))


def _range(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {minimum} to {maximum}"
    if minimum is not None:
        return f" of at least {minimum}"
    return "" if maximum is None else f" of at most {maximum}"


def _bounds(kind: str, minimum: float | None, maximum: float | None) -> dict[str, object]:
    bounds: dict[str, object] = {"type": kind}
    if minimum is not None:
        bounds["minimum"] = minimum
    if maximum is not None:
        bounds["maximum"] = maximum
    return bounds


def one_of(*names: str) -> Converter[str]:
    """One of a few words."""

    def read(found: object) -> str:
        if found not in names:
            raise Mismatch
        return str(found)

    return Converter("one of " + ", ".join(shown(name) for name in names), read, {"enum": list(names)})


def mapped(converter: Converter[S], into: Callable[[S], T]) -> Converter[T]:
    """The same in the file, something else in the program. `into` may raise Mismatch."""
    return Converter(converter.expected, lambda found: into(converter.read(found)), converter.schema)


def member_of(enumeration: type[E]) -> Converter[E]:
    """One of a few words that the model has a type for."""
    return mapped(one_of(*enumeration), enumeration)


def list_of(item: Converter[T], expected: str) -> Converter[tuple[T, ...]]:
    """An array, or one item for an array of one."""

    def read(found: object) -> tuple[T, ...]:
        return tuple(item.read(each) for each in (found if isinstance(found, list) else [found]))

    schema = {"anyOf": [item.schema, {"type": "array", "items": item.schema}]}
    return Converter(expected, read, schema)


def table_of(item: Converter[T], expected: str) -> Converter[tuple[tuple[str, T], ...]]:
    """A table whose keys are free."""

    def read(found: object) -> tuple[tuple[str, T], ...]:
        if not isinstance(found, dict):
            raise Mismatch
        return tuple((str(key), item.read(each)) for key, each in found.items())

    return Converter(expected, read, {"type": "object", "additionalProperties": item.schema})


def either(first: Converter[S], second: Converter[T]) -> Converter[S | T]:
    """What suits the first, else what suits the second."""

    def read(found: object) -> S | T:
        try:
            return first.read(found)
        except UNREADABLE:
            return second.read(found)

    schema = {"anyOf": [first.schema, second.schema]}
    return Converter(f"{first.expected}, or {second.expected}", read, schema)


def matching(pattern: str, expected: str) -> Converter[str]:
    """A string that matches the whole pattern."""
    compiled = re.compile(pattern)

    def read(found: object) -> str:
        if compiled.fullmatch(_read_text(found)) is None:
            raise Mismatch
        return _read_text(found)

    return Converter(expected, read, {"type": "string", "pattern": f"^(?:{pattern})$"})


text_list = list_of(text, "a string or an array of strings")
word_list = list_of(word, "an array of strings that are not empty")
MAX_PORT = 65535
port = integer(1, MAX_PORT)
