"""Writes the TOML that unit files need: tables of strings, numbers, booleans, arrays, and tables of strings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

Value = str | bool | int | float | list[str] | list[list[str]] | list[int | str] | dict[str, str]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 100


def document(comments: Iterable[str], tables: Mapping[str, Mapping[str, Value]]) -> str:
    lines = [*_comments(comments)]
    for name, keys in tables.items():
        lines += ["", *_table(name, keys)]
    return "\n".join(lines).lstrip("\n") + "\n"


def _comments(comments: Iterable[str]) -> Iterator[str]:
    for comment in comments:
        shown = "".join(char if char.isprintable() else "?" for char in comment)
        yield f"# {shown}".rstrip()


def _table(name: str, keys: Mapping[str, Value]) -> Iterator[str]:
    yield f"[{name}]"
    for key, value in keys.items():
        if not isinstance(value, dict):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in keys.items():
        if isinstance(value, dict):
            yield ""
            yield f"[{name}.{_key(key)}]"
            yield from (f"{_key(inner)} = {_string(each)}" for inner, each in value.items())


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _value(value: object, indentation: str = "") -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _string(value)
        case list():
            line = f"[{', '.join(_value(item) for item in value)}]"
            return line if len(indentation + line) <= _WIDTH and "\n" not in line else _long(value, indentation)
        case _:
            return str(value)


def _long(items: list[object], indentation: str) -> str:
    """One item a line."""
    deeper = f"{indentation}    "
    return "[\n" + "".join(f"{deeper}{_value(item, deeper)},\n" for item in items) + f"{indentation}]"


def _string(text: str) -> str:
    """JSON's strings are TOML's, but for DEL, which TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
