"""[Engine.Args] to command-line arguments, the same for every engine (design 2)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from supervisor.unit.model import ArgValue, Repeat


def arguments(args: Iterable[tuple[str, ArgValue]]) -> tuple[str, ...]:
    """value -> `--key value`; true -> `--key`; false -> nothing; array, repeat and table as design 2 says."""
    return tuple(word for key, value in args for word in _argument(f"--{key}", value))


def _argument(flag: str, value: ArgValue) -> tuple[str, ...]:
    match value:
        case bool():
            return (flag,) if value else ()
        case Repeat():
            return tuple(word for item in value for word in (flag, item))
        case tuple():
            return (flag, *value)
        case dict():
            return (flag, json.dumps(value, separators=(",", ":"), sort_keys=True))
        case _:
            return (flag, str(value))
