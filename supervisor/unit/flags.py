"""What an engine's [Engine.Args] and ExtraArgs say, read by flag; how they are written down is the launchers'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest

import msgspec

from supervisor.unit.model import ArgValue, Engine
from supervisor.unit.toml_lines import KeyPath


class Flag(msgspec.Struct, frozen=True):
    name: str
    """Without dashes in front, with dashes inside."""
    value: ArgValue
    """True for a word in ExtraArgs that no value follows."""
    path: KeyPath
    """Below [Engine]."""
    words: str
    """As a person wrote it."""


def flags_of(engine: Engine) -> Iterator[Flag]:
    """In the order of the command line, so that the last of several is the one that counts."""
    for name, value in engine.args:
        yield Flag(flag_name(name), value, ("Args", name), f"--{name}")
    extra = engine.extra_args
    for word, following in zip_longest(extra, extra[1:], fillvalue=""):
        if not word.startswith("-") or _is_number(word):
            continue
        written, equals, value = word.partition("=")
        if not equals and following and not (following.startswith("-") and not _is_number(following)):
            value = following
        yield Flag(flag_name(written), value or True, ("ExtraArgs",), written)


def flag_name(written: str) -> str:
    """Both engines take `--node_rank` for `--node-rank`."""
    return written.lstrip("-").replace("_", "-")


def last_of(engine: Engine, *names: str) -> Flag | None:
    """The one of several spellings that counts."""
    found = [flag for flag in flags_of(engine) if flag.name in names]
    return found[-1] if found else None


def is_on(engine: Engine, *names: str) -> bool:
    flag = last_of(engine, *names)
    return flag is not None and flag.value is not False


def table_value(value: ArgValue) -> Mapping[str, object] | None:
    """A table, written as one or as JSON; None if it is neither."""
    if isinstance(value, dict):
        return value
    try:
        found = msgspec.json.decode(str(value))
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def _is_number(word: str) -> bool:
    return word[1:2].isdigit()
