"""A program that has run out of descriptors says so, and does not drown its log in it."""

from __future__ import annotations

import errno
import io
import json
import logging
from collections.abc import Iterator

import pytest
import trio

from supervisor.shared import logs


class NoDescriptors(trio.abc.Listener[trio.abc.Stream]):
    """As accept(2) fails then."""

    async def accept(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        raise OSError(errno.EMFILE, "Too many open files")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What is logged, as JSON."""
    root, stream = logging.getLogger(), io.StringIO()
    before, level = root.handlers, root.level
    logs.configure("info", "json", stream)
    yield stream
    root.handlers = before
    root.setLevel(level)


async def test_a_listener_without_descriptors_says_so_once_and_without_a_trace(
    written: io.StringIO, autojump_clock: trio.testing.MockClock
) -> None:
    async def ignore(stream: trio.abc.Stream) -> None:
        await stream.aclose()

    with trio.move_on_after(20):
        await trio.serve_listeners(ignore, [NoDescriptors()])
    (line,) = map(json.loads, written.getvalue().splitlines())
    assert line["message"].startswith("no connection can be accepted: Too many open files; ")
    assert "exc_info" not in line
