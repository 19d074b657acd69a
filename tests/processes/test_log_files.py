"""`file:PATH` over reloads, commands beside the unit and disks that hang: who opens, who writes, who closes it."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisor.process.drops import Drop
from supervisor.process.file_sink import FileSink
from supervisor.process.output import ContainerStdout, Output, Pipes
from supervisor.process.sink import Sink
from supervisor.unit.model import Logging
from tests.support.real_processes import TIMEOUT_SEC, told


def open_below(directory: Path) -> list[str]:
    """The names of the files there that this process has open."""
    paths = [Path(os.readlink(f"/proc/self/fd/{number}")) for number in os.listdir("/proc/self/fd") if readable(number)]
    return sorted(path.name for path in paths if path.is_relative_to(directory))


def readable(number: str) -> bool:
    """Not the one with which /proc/self/fd itself was read."""
    return os.path.lexists(f"/proc/self/fd/{number}")


@asynccontextmanager
async def pumped(output: Output) -> AsyncIterator[Pipes]:
    """Pipes of which we are the process; at the end all of it was read and written."""
    pipes = output.open()
    with trio.fail_after(TIMEOUT_SEC):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(output.pump, pipes)
            yield pipes
            pipes.close_write_ends()


async def test_a_reload_under_a_running_unit_leaves_no_file_open(tmp_path: Path) -> None:
    output = Output("unit", f"file:{tmp_path}/0", ContainerStdout())
    for number in range(5):
        async with pumped(output) as pipes:
            os.write(pipes.stdout, b"before\n")
            await told(tmp_path / str(number))
            output.configure(Logging(stdout=f"file:{tmp_path}/{number + 1}"))
            os.write(pipes.stdout, b"after\n")
            await told(tmp_path / str(number), lines=2)
        assert open_below(tmp_path) == []


async def test_what_a_reload_takes_away_is_written_on_and_opened_anew(tmp_path: Path) -> None:
    """Of a process that runs on: SIGUSR1 still means its file, and the limits of the new settings hold for it."""
    output = Output("unit", f"file:{tmp_path}/old", ContainerStdout())
    async with pumped(output) as pipes:
        os.write(pipes.stdout, b"before\n")
        await told(tmp_path / "old")
        output.configure(Logging(stdout=f"file:{tmp_path}/new"))
        (tmp_path / "old").rename(tmp_path / "moved")
        output.reopen()
        os.write(pipes.stdout, b"1234\n")
        await told(tmp_path / "old")
        output.configure(Logging(stdout=f"file:{tmp_path}/new", rotate_size=5, rotate_keep=1))
        os.write(pipes.stdout, b"5678\n")
    assert (tmp_path / "moved").read_text() == "before\n"
    assert ((tmp_path / "old.1").read_text(), (tmp_path / "old").read_text()) == ("1234\n", "5678\n")


async def test_a_file_is_not_closed_while_it_is_written(tmp_path: Path) -> None:
    """Its number could be another file's by then. A named pipe that nobody reads holds the write up."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    written = b"a line of log\n" * 20_000
    output = Output("unit", f"file:{fifo}", ContainerStdout())
    try:
        async with pumped(output) as pipes:
            await trio.to_thread.run_sync(os.write, pipes.stdout, written)
            while waiting_in(reader) < 65536:
                await trio.sleep(0.001)  # filled in a worker thread: there is no event to wait for
            output.configure(Logging(stdout="null"))
            assert open_below(tmp_path) == ["fifo", "fifo"]
            os.set_blocking(reader, True)
            pipes.close_write_ends()
            assert await trio.to_thread.run_sync(read_all, reader) == written
        assert open_below(tmp_path) == ["fifo"]
    finally:
        os.close(reader)


def waiting_in(descriptor: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0])


def read_all(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()


async def test_a_command_beside_the_unit_neither_closes_its_file_nor_waits_for_it(tmp_path: Path) -> None:
    output = Output("unit", f"file:{tmp_path}/log", ContainerStdout())
    async with pumped(output) as pipes:
        os.write(pipes.stdout, b"unit\n")
        await told(tmp_path / "log")
        async with pumped(output) as beside:
            os.write(beside.stdout, b"command\n")
        await told(tmp_path / "log", lines=2)
        assert open_below(tmp_path) == ["log"]
        os.write(pipes.stdout, b"unit again\n")
    assert (tmp_path / "log").read_text() == "unit\ncommand\nunit again\n"
    assert open_below(tmp_path) == []


async def test_whoever_takes_a_file_while_it_is_closed_has_it_open(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "log"), 0, 0, lambda _: None)
    for number in range(3):
        async with sink.held():
            sink.offer((b"%d\n" % number,))
    async with trio.open_nursery() as nursery:
        for number in range(3, 6):
            nursery.start_soon(_write_one, sink, number)
    assert sorted((tmp_path / "log").read_text().split()) == list("012345")
    assert open_below(tmp_path) == []


async def _write_one(sink: FileSink, number: int) -> None:
    async with sink.held():
        await trio.lowlevel.checkpoint()
        sink.offer((b"%d\n" % number,))


async def test_a_disk_that_hangs_costs_the_buffer_nothing_for_good() -> None:
    """What was under way when nobody waited any longer counts as lost, once, and makes room."""
    disk, written, drops = threading.Event(), list[bytes](), list[Drop]()

    def write_all(items: Sequence[bytes]) -> None:
        disk.wait()
        written.extend(items)

    sink = Sink(write_all, "/mnt/log", lose=lambda size: drops.append(Drop("unit", "stdout", lost_bytes=size)))
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sink.run)
            sink.offer((b"under way\n",))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert sum(drop.lost_bytes for drop in drops) == 2 * len(b"under way\n")
    disk.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sink.run)
        sink.offer((b"after\n",))
        assert await sink.flush(trio.current_time() + TIMEOUT_SEC)
        nursery.cancel_scope.cancel()
    assert written[-1] == b"after\n"


@pytest.mark.parametrize("mode", ["file", "null"])
async def test_a_cancelled_pump_leaves_neither_pipes_nor_files(mode: str, tmp_path: Path) -> None:
    output = Output("unit", f"file:{tmp_path}/log" if mode == "file" else mode, ContainerStdout())
    before = len(os.listdir("/proc/self/fd"))
    pipes = output.open()
    os.write(pipes.stdout, b"said\n")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(output.pump, pipes)
            scope.cancel()
    pipes.close_write_ends()
    assert output.lines(1) == ["said"]
    assert len(os.listdir("/proc/self/fd")) == before
    assert mode == "null" or (tmp_path / "log").read_text() == "said\n"
