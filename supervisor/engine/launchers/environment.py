"""The environment that an engine gets: what was set for it, completed by its launcher, without what would break it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

SERVICE_LINK = r"(tcp|udp|sctp)://.*"
"""What Kubernetes puts into NAME_PORT for a Service of that name, where an engine expects a number."""


class Unwanted(msgspec.Struct, frozen=True):
    """A variable that this engine must not be given."""

    name: str
    """fnmatch(3) pattern."""
    value: str
    """Regular expression over the whole value: any other may stay."""
    why: str


def engine_environment(
    given: Mapping[str, str], defaults: Mapping[str, str], unwanted: tuple[Unwanted, ...]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment, and in words what was left out of it. What somebody has set wins over the launcher."""
    dropped = {name: why for name, value in given.items() if (why := _why_not(name, value, unwanted)) is not None}
    kept = {name: value for name, value in given.items() if name not in dropped}
    return {**defaults, **kept}, tuple(f"{name} ({why})" for name, why in sorted(dropped.items()))


def _why_not(name: str, value: str, unwanted: tuple[Unwanted, ...]) -> str | None:
    return next(
        (each.why for each in unwanted if fnmatchcase(name, each.name) and re.fullmatch(each.value, value)), None
    )
