"""Output that did not get to where it was to go: told to whoever counts or reports it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Drop(msgspec.Struct, frozen=True):
    """A mark in the output itself tells the same in its place, as soon as one can be written."""

    unit: str
    stream: str
    lost_bytes: int = 0
    """Could not be written in time, or not at all."""
    suppressed_lines: int = 0
    """More than the rate limit lets pass."""


DropObserver = Callable[[Drop], None]
"""Called for each piece that is lost, which may be often: quick, and without exceptions."""


def nobody(drop: Drop) -> None:
    """For output that nobody counts."""
