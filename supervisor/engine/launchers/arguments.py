"""[Engine.Args] to command-line arguments, the same for every engine (design 2)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from supervisor.unit.model import ArgValue, Repeat


def arguments(args: Iterable[tuple[str, ArgValue]], negation: str | None = None) -> tuple[str, ...]:
    """value -> `--key value`; true -> `--key`; array, repeat and table as design 2 says.

    false -> the key behind `negation`, for a program that has such flags; else nothing.
    """
    return tuple(word for key, value in args for word in _argument(key, value, negation))


def _argument(key: str, value: ArgValue, negation: str | None) -> tuple[str, ...]:
    flag = f"--{key}"
    match value:
        case True:
            return (flag,)
        case False:
            return (f"{negation}{key}",) if negation is not None else ()
        case Repeat():
            return tuple(word for item in value for word in (flag, item))
        case tuple():
            return (flag, *value)
        case dict():
            return (flag, json.dumps(value, separators=(",", ":"), sort_keys=True))
        case _:
            return (flag, str(value))
