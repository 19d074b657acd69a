"""What a conversion has to say: about one key of a foreign file, or about the file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from supervisor.unit.errors import Problem


class Kind(StrEnum):
    LOST = "lost"
    """Nothing in the unit file stands for it."""
    CHANGED = "changed"
    """It is carried over, but does not mean quite the same."""


class Place(msgspec.Struct, frozen=True):
    """Where a key was written."""

    path: Path
    line: int | None
    key: str
    """`program:web.numprocs`, `Service.PrivateTmp`, a section, or nothing for the whole file."""


class Remark(msgspec.Struct, frozen=True):
    kind: Kind
    place: Place
    message: str

    def __str__(self) -> str:
        return str(Problem(self.place.path, self.place.line, self.place.key, f"{self.kind}: {self.message}"))


class Unconvertible(ValueError):
    """This value cannot be carried over; the text says why."""


def lost(place: Place, message: str) -> Remark:
    return Remark(Kind.LOST, place, message)


def changed(place: Place, message: str) -> Remark:
    return Remark(Kind.CHANGED, place, message)
