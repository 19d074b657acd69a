"""`${VAR}`, `${VAR:-default}`, `${VAR:?message}`, `${CREDENTIAL:name}` and `$$` in the strings of a unit.

As in a shell `:-` and `:?` also speak when the variable is empty; a default may hold variables of its own. Any
other `$` is itself. Where the variables come from is decided by those who launch the unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from supervisor.unit.model import Conditions, HttpCheck, LogLineCheck, TcpCheck, Unit

T = TypeVar("T")

CREDENTIAL = "CREDENTIAL:"
"""What the name of a variable begins with that stands for a secret of LoadCredential."""
_NAME = re.compile(r"CREDENTIAL:[A-Za-z0-9_.][A-Za-z0-9_.-]*|[A-Za-z_][A-Za-z0-9_]*")

VERBATIM: frozenset[tuple[type, str]] = frozenset({
    (Unit, "name"),
    (Unit, "description"),
    (Unit, "documentation"),
    (Unit, "dependencies"),
    (Conditions, "environment"),
    # In a regular expression `$` has a meaning of its own.
    (HttpCheck, "expect_body"),
    (TcpCheck, "expect"),
    (LogLineCheck, "pattern"),
})  # fmt: skip
"""Fields in which nothing is replaced."""


class ExpansionError(Exception):
    """A variable that is not set, or a `${` that cannot be read (then `name` is empty)."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        self.message = message
        super().__init__(f"{name}: {message}" if name else message)


class Reference(msgspec.Struct, frozen=True):
    """One `${…}`."""

    name: str
    operator: str
    """`:-`, `:?` or nothing."""
    word: str
    """The default, or the message."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace every reference. Raise ExpansionError with the name of the first variable that is not set."""
    return "".join(part if isinstance(part, str) else _value(part, variables) for part in parts(text))


def _value(reference: Reference, variables: Mapping[str, str]) -> str:
    value = variables.get(reference.name)
    if reference.operator and value == "":
        value = None
    if value is not None:
        return value
    if reference.operator == ":-":
        return expand(reference.word, variables)
    raise ExpansionError(reference.name, reference.word or f"${{{reference.name}}} is not set and has no default")


def parts(text: str) -> Iterator[str | Reference]:
    """The text cut into what is itself and what stands for a value. Raise ExpansionError."""
    start = 0
    while (dollar := text.find("$", start)) >= 0:
        yield text[start:dollar]
        if text.startswith("$$", dollar):
            yield "$"
            start = dollar + 2
        elif text.startswith("${", dollar):
            end = _closing_brace(text, dollar)
            yield _reference(text[dollar + 2 : end])
            start = end + 1
        else:
            yield "$"
            start = dollar + 1
    yield text[start:]


def _closing_brace(text: str, dollar: int) -> int:
    depth, position = 0, dollar
    while position < len(text):
        if text.startswith("${", position):
            depth += 1
            position += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    raise ExpansionError("", f"{text[dollar:]!r} has no closing brace; a plain dollar before a brace is $${{")


def _reference(inside: str) -> Reference:
    name = _NAME.match(inside)
    rest = inside[name.end() :] if name else inside
    if name is None or (rest and not rest.startswith((":-", ":?"))):
        raise ExpansionError(
            "", f"cannot read ${{{inside}}}: expected ${{NAME}}, ${{NAME:-default}} or ${{NAME:?message}}"
        )
    return Reference(name[0], rest[:2], rest[2:])


def expand_unit(unit: Unit, variables: Mapping[str, str], from_files: Mapping[str, str] | None = None) -> Unit:
    """The unit with its strings expanded.

    `variables` are the supervisor's environment and the placement. The unit's own Environment comes on top, each
    value seeing those before it, then `from_files`, what its EnvironmentFile says (systemd.exec(5): files win).
    Raise ExpansionError.
    """
    execution = unit.service.execution
    known = dict(variables)
    environment = []
    for name, value in execution.environment:
        known[name] = expand(value, known)
        environment.append((name, known[name]))
    known |= from_files or {}
    expanded = _map_strings(unit, lambda text: expand(text, known))
    execution = replace(expanded.service.execution, environment=tuple(environment))
    return replace(expanded, service=replace(expanded.service, execution=execution))


def undefined_variables(unit: Unit, known: AbstractSet[str]) -> tuple[str, ...]:
    """The names that `unit` needs, has no default for, and that are neither `known` nor its own, in order.

    Raise ExpansionError for a `${` that cannot be read.
    """
    defined = {*known, *(f"{CREDENTIAL}{name}" for name, _ in unit.service.execution.credentials)}
    missing: dict[str, None] = {}

    def note(text: str) -> str:
        missing.update(dict.fromkeys(_needed(text, defined)))
        return text

    for name, value in unit.service.execution.environment:
        note(value)
        defined.add(name)
    _map_strings(unit, note)
    return tuple(missing)


def _needed(text: str, defined: AbstractSet[str]) -> Iterator[str]:
    for part in parts(text):
        if isinstance(part, str) or part.name in defined:
            continue
        if part.operator == ":-":
            yield from _needed(part.word, defined)
        else:
            yield part.name


def _map_strings(value: T, change: Callable[[str], str]) -> T:
    """The same value with every string changed that is not VERBATIM."""
    return _mapped(value, change)  # type: ignore[return-value]


def _mapped(value: object, change: Callable[[str], str]) -> object:
    match value:
        case Enum():
            return value
        case str():
            return change(value)
        case tuple():
            return type(value)(_mapped(item, change) for item in value)
        case list():
            return [_mapped(item, change) for item in value]
        case dict():
            return {key: _mapped(item, change) for key, item in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    changed = {
        name: _mapped(getattr(value, name), change)
        for name in value.__struct_fields__
        if (type(value), name) not in VERBATIM
    }
    return replace(value, **changed)
