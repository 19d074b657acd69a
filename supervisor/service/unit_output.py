"""Lend the unit's output to its processes: pipes while they run, drained to the end when they are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from supervisor.process.line_format import Field
from supervisor.process.output import Follower, Pipes
from supervisor.process.tail import Tail
from supervisor.unit.model import Logging

DRAIN_SEC = 0.3
"""How long the output of a tree that is gone is read on: only what escaped the tree can hold it open longer."""


class UnitOutput(Protocol):
    """`supervisor.process.output.Output`, as far as services use it."""

    @property
    def tail(self) -> Tail: ...

    def open(self) -> Pipes:
        """Raise OSError when descriptors have run out."""

    async def pump(self, pipes: Pipes, fields: Mapping[str, Field] | None = None) -> None: ...

    def configure(self, logging: Logging) -> None:
        """Streams that are being read go where they went; limits hold at once."""

    def reopen(self) -> None: ...

    def lines(self, count: int) -> list[str]: ...

    def begin_life(self) -> None: ...

    def lines_of_life(self, count: int) -> list[str]: ...

    def follow(self, backlog: int = 0) -> Follower: ...


@asynccontextmanager
async def lent(output: UnitOutput, fields: Mapping[str, Field]) -> AsyncIterator[Pipes]:
    """Pipes that are pumped; leaving the block closes our ends and waits, a moment only, for the rest to be read.

    Raise OSError when descriptors have run out.
    """
    pipes = output.open()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(output.pump, pipes, fields)
            try:
                yield pipes
            finally:
                pipes.close_write_ends()
            # The nursery waits for the pump; whoever still holds a pipe gets no more than this.
            nursery.cancel_scope.deadline = trio.current_time() + DRAIN_SEC
    finally:
        pipes.close()
