"""Makes a frozen struct, and the structs nested in it, from a flat table of dotted field names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

T = TypeVar("T", bound=msgspec.Struct)


def build(struct: Callable[..., T], fields: Mapping[str, object]) -> T:
    """`{"a": 1, "b.c": 2}` -> `struct(a=1, b=<its default with c=2>)`."""
    plain, nested = _split(fields)
    made = struct(**plain)
    return assign(made, nested) if nested else made


def assign(made: T, fields: Mapping[str, object]) -> T:
    """The same struct with those fields changed."""
    if not isinstance(made, msgspec.Struct):
        raise TypeError(f"{made!r} is no struct to set {', '.join(fields)} in")
    plain, nested = _split(fields)
    heads: dict[str, dict[str, object]] = {}
    for name, value in nested.items():
        head, _, rest = name.partition(".")
        heads.setdefault(head, {})[rest] = value
    inner = {head: assign(getattr(made, head), values) for head, values in heads.items()}
    return replace(made, **plain, **inner)


def _split(fields: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    plain = {name: value for name, value in fields.items() if "." not in name}
    return plain, {name: value for name, value in fields.items() if "." in name}
