"""Output through real pipes: drained, bounded, marked where something is missing, and never in the way."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from supervisor.process.children import Child, Children
from supervisor.process.drops import Drop
from supervisor.process.output import ContainerStdout, Gap, Output, Pipes, RateLimit
from supervisor.process.rotation import RotatingFile
from supervisor.process.sink import BUFFER_BYTES, MarkingWriter, Sink
from tests.support.real_processes import TIMEOUT_SEC, reaping, spawn_of, told


@asynccontextmanager
async def container_stdout(path: Path, buffer_bytes: int = BUFFER_BYTES) -> AsyncIterator[ContainerStdout]:
    """A stdout that is a file; everything is written when the block is left."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stdout = ContainerStdout(descriptor, buffer_bytes=buffer_bytes)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(stdout.run)
            yield stdout
            assert await stdout.flush(trio.current_time() + 30)
            nursery.cancel_scope.cancel()
    finally:
        os.close(descriptor)


async def started(children: Children, output: Output, script: str) -> tuple[Child, Pipes]:
    pipes = output.open()
    child = await children.spawn(replace(spawn_of("sh", "-c", script), stdout=pipes.stdout, stderr=pipes.stderr))
    pipes.close_write_ends()
    return child, pipes


async def run(
    tmp_path: Path, script: str, mode: str = "pass", make: Callable[[str, str, ContainerStdout], Output] = Output
) -> tuple[Output, bytes]:
    """The output object, and what came out of the container, after a shell script has run."""
    async with reaping() as children, container_stdout(tmp_path / "container") as stdout:
        output = make("unit", mode, stdout)
        _, pipes = await started(children, output, script)
        await output.pump(pipes, {"epoch": 3})
    return output, (tmp_path / "container").read_bytes()


async def test_pass_is_exact_to_the_byte(tmp_path: Path) -> None:
    binary = os.urandom(3_000_000) + b"\r\n\r\0" + os.urandom(100_000)
    (tmp_path / "binary").write_bytes(binary)
    _, written = await run(tmp_path, f"cat {tmp_path}/binary")
    assert written == binary


async def test_prefix_and_both_streams(tmp_path: Path) -> None:
    output, written = await run(tmp_path, "echo out; echo err >&2; printf 'no end'", "prefix")
    assert sorted(written.splitlines()) == [
        b"[unit epoch=3] err",
        b"[unit epoch=3] no end",
        b"[unit epoch=3] out",
    ]
    assert sorted(output.lines(10)) == ["err", "no end", "out"]


async def test_json_tells_the_streams_apart(tmp_path: Path) -> None:
    _, written = await run(tmp_path, "echo out; echo err >&2", "json")
    found = [json.loads(line) for line in written.splitlines()]
    assert {(one["stream"], one["message"], one["unit"], one["epoch"]) for one in found} == {
        ("stdout", "out", "unit", 3),
        ("stderr", "err", "unit", 3),
    }


async def test_null_is_drained_and_kept_in_the_tail(tmp_path: Path) -> None:
    output, written = await run(tmp_path, "seq 100000", "null", partial(Output, tail_bytes=1000))
    assert written == b""
    assert output.lines(2) == ["99999", "100000"]
    assert sum(map(len, output.lines(100_000))) <= 1000


async def test_streams_can_go_different_ways(tmp_path: Path) -> None:
    log = tmp_path / "log" / "err"
    _, written = await run(tmp_path, "echo out; echo err >&2", "pass", partial(Output, stderr_mode=f"file:{log}"))
    assert written == b"out\n"
    assert log.read_bytes() == b"err\n"


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="unit u: unknown output mode 'journal'; known are pass, prefix"):
        Output("u", "journal", ContainerStdout())


async def test_long_lines_and_progress_bars(tmp_path: Path) -> None:
    script = "head -c 40000 /dev/zero | tr '\\0' x; echo; for i in 1 2 3 4 5; do printf '%s%%\\r' $i; done; echo done"
    _, written = await run(tmp_path, script, "prefix")
    *long, first, last = written.splitlines()
    assert [len(line) for line in long] == [16384 + 44, 16384 + 44, 40000 - 2 * 16384 + 15]
    assert [line.endswith(b"[podvisor: the line goes on]") for line in long] == [True, True, False]
    assert (first, last) == (b"[unit epoch=3] 1%", b"[unit epoch=3] done")


async def test_the_newest_progress_is_shown_though_nothing_follows_it(tmp_path: Path) -> None:
    container = container_stdout(tmp_path / "container")
    async with reaping() as children, container as stdout, trio.open_nursery() as nursery:
        output = Output("unit", "prefix", stdout)
        lines = output.follow()
        child, pipes = await started(children, output, "printf '1%%\\r2%%\\r3%%\\r'; exec sleep 1000")
        nursery.start_soon(output.pump, pipes)
        assert [await anext(lines), await anext(lines)] == ["1%", "3%"]
        children.signal(child, signal.SIGKILL)


async def test_a_rate_limit_marks_what_it_suppressed(tmp_path: Path) -> None:
    container = container_stdout(tmp_path / "container")
    async with reaping() as children, container as stdout, trio.open_nursery() as nursery:
        output = Output("unit", "prefix", stdout, rate_limit=RateLimit(interval_sec=0.2, burst=2))
        child, pipes = await started(children, output, "seq 10; sleep 0.5; echo later; exec sleep 1000")
        nursery.start_soon(output.pump, pipes)
        written = [line.removeprefix("[unit] ") for line in await told(tmp_path / "container", 4)]
        assert written[:2] == ["1", "2"]
        assert "8 lines were suppressed" in written[2]
        assert written[3] == "later"
        assert len(output.lines(100)) == 11  # the tail has them all
        children.signal(child, signal.SIGKILL)


@pytest.mark.parametrize("mode", ["pass", "prefix", "file"])
async def test_what_a_rate_limit_suppressed_last_is_told_though_nothing_follows(mode: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    drops: list[Drop] = []
    limit = RateLimit(interval_sec=600, burst=2)
    _, written = await run(
        tmp_path,
        "seq 5",
        f"file:{log}" if mode == "file" else mode,
        partial(Output, rate_limit=limit, drops=drops.append),
    )
    lines = (log.read_bytes() if mode == "file" else written).replace(b"[unit epoch=3] ", b"").splitlines()
    assert lines == [
        b"1",
        b"2",
        b"[podvisor: 3 lines were suppressed: more than LogRateLimitBurst in an interval]",
    ]
    assert sum(drop.suppressed_lines for drop in drops) == 3


async def test_a_rate_limit_tells_in_time_of_a_unit_that_has_fallen_silent(tmp_path: Path) -> None:
    container = container_stdout(tmp_path / "container")
    async with reaping() as children, container as stdout, trio.open_nursery() as nursery:
        output = Output("unit", "prefix", stdout, rate_limit=RateLimit(interval_sec=0.2, burst=1))
        child, pipes = await started(children, output, "seq 3; exec sleep 1000")
        nursery.start_soon(output.pump, pipes)
        assert "2 lines were suppressed" in (await told(tmp_path / "container", 2))[1]
        children.signal(child, signal.SIGKILL)


async def test_a_file_without_kept_ones_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "unit.log"
    await run(tmp_path, "seq 1000", f"file:{log}", partial(Output, rotate_size=1000, rotate_keep=0))
    assert list(tmp_path.glob("unit.log*")) == [log]
    assert log.read_text().splitlines()[-1] == "1000"
    assert log.stat().st_size <= 1000


async def test_a_file_that_cannot_be_written_tells_what_it_lost(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    drops: list[Drop] = []
    await run(tmp_path, "echo lost", f"file:{tmp_path}/file/unit.log", partial(Output, drops=drops.append))
    assert sum(drop.lost_bytes for drop in drops) == len("lost\n")


async def test_a_grandchild_that_holds_the_pipe_holds_nothing_else(tmp_path: Path) -> None:
    async with reaping() as children, container_stdout(tmp_path / "container") as stdout:
        output = Output("unit", "pass", stdout)
        child, pipes = await started(children, output, "echo first; sleep 1000 & echo last")
        before = set(os.listdir("/proc/self/fd"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(output.pump, pipes)
            await child.exited.wait()  # at once: the exit is not told by the end of the pipe
            nursery.cancel_scope.cancel()
        assert output.lines(10) == ["first", "last"]  # what was in the pipe was read, cancelled or not
        assert len(before - set(os.listdir("/proc/self/fd"))) == 2


async def test_a_reader_of_stdout_that_stops_never_stops_the_unit(tmp_path: Path) -> None:
    """The process writes 42 MB although nobody reads; what did not fit is counted, and marked when reading goes on."""
    read_end, write_end = os.pipe()
    stdout = ContainerStdout(write_end, buffer_bytes=1_000_000)
    output = Output("unit", "prefix", stdout)
    script = "yes 'a line of log' | head -c 42000000; echo the end"
    async with reaping() as children, trio.open_nursery() as nursery:
        await nursery.start(stdout.run)
        _, pipes = await started(children, output, script)
        await output.pump(pipes)
        assert output.lines(1) == ["the end"]
        assert not await stdout.flush(trio.current_time() + 0.05)

        written = await read_until(read_end, b"written in time]\n")  # told without waiting for more output
        _, pipes = await started(children, output, "echo next invocation")
        nursery.start_soon(output.pump, pipes)
        assert await read_until(read_end, b"next invocation\n") == b"[unit] next invocation\n"
        nursery.cancel_scope.cancel()
    os.close(read_end)
    os.close(write_end)
    *lines, mark = written.splitlines()
    assert set(lines) == {b"[unit] a line of log"}
    lost = re.fullmatch(r"\[unit\] \[podvisor: (\d+) bytes of output are missing here: .*\]", mark.decode())
    assert lost is not None
    # Lost is what was dressed and not written; the last line is "the end".
    assert int(lost[1]) == (42_000_000 // 14 - len(lines)) * len(b"[unit] a line of log\n") + len(b"[unit] the end\n")


async def read_until(descriptor: int, end: bytes) -> bytes:
    return await trio.to_thread.run_sync(_read_until, descriptor, end, abandon_on_cancel=True)


def _read_until(descriptor: int, end: bytes) -> bytes:
    read = bytearray()
    while not read.endswith(end):
        read += os.read(descriptor, 65536)
    return bytes(read)


async def test_a_slow_but_living_reader_slows_the_unit_down_and_loses_nothing(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    stdout = ContainerStdout(write_end, buffer_bytes=100_000)
    output = Output("unit", "pass", stdout)
    async with reaping() as children, trio.open_nursery() as nursery:
        await nursery.start(stdout.run)
        _, pipes = await started(children, output, "seq 1000000; echo the end")
        nursery.start_soon(output.pump, pipes)
        written = await read_until(read_end, b"the end\n")
        nursery.cancel_scope.cancel()
    os.close(read_end)
    os.close(write_end)
    assert written == b"".join(b"%d\n" % number for number in range(1, 1_000_001)) + b"the end\n"


@pytest.mark.parametrize("mode", ["pass", "prefix"])
@pytest.mark.parametrize("script", ["seq 150000", "seq 150000 & seq 150000 >&2; wait"], ids=["units", "streams"])
async def test_busy_streams_share_a_living_reader_and_lose_nothing(script: str, mode: str, tmp_path: Path) -> None:
    """Who waited for room still finds it when its turn comes to read."""
    drops: list[Drop] = []
    async with reaping() as children:
        descriptor = os.open(tmp_path / "container", os.O_WRONLY | os.O_CREAT)
        stdout = ContainerStdout(descriptor, buffer_bytes=100_000)
        async with trio.open_nursery() as container:
            await container.start(stdout.run)
            async with trio.open_nursery() as pumps:
                for unit in ("first", "second"):
                    output = Output(unit, mode, stdout, drops=drops.append)
                    pumps.start_soon(output.pump, (await started(children, output, script))[1])
            assert await stdout.flush(trio.current_time() + TIMEOUT_SEC)
            container.cancel_scope.cancel()
        os.close(descriptor)
    assert not drops
    assert (tmp_path / "container").read_bytes().count(b"\n") == 2 * script.count("seq") * 150_000


@pytest.mark.parametrize("mode", ["pass", "null", "prefix"])
async def test_a_slow_follower_gets_a_gap_and_the_newest_lines(mode: str, tmp_path: Path) -> None:
    async with reaping() as children, container_stdout(tmp_path / "container") as stdout:
        output = Output("unit", mode, stdout)
        slow = output.follow()
        quick: list[str | Gap] = []

        async def follow() -> None:
            async for line in output.follow():
                quick.append(line)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            _, pipes = await started(children, output, "seq 200000")
            await output.pump(pipes)
            gap = await anext(slow)
            assert isinstance(gap, Gap)
            kept = [await anext(slow) for _ in range(200_000 - gap.lost_lines)]
            assert kept[-1] == "200000"
            assert kept[0] == str(gap.lost_lines + 1)
            assert f"{gap.lost_lines} lines are missing" in str(gap)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        lost = sum(line.lost_lines for line in quick if isinstance(line, Gap))
        assert lost + sum(isinstance(line, str) for line in quick) == 200_000
        assert quick[-1] == "200000"


async def test_following_begins_with_the_backlog_and_misses_nothing(tmp_path: Path) -> None:
    async with reaping() as children, container_stdout(tmp_path / "container") as stdout:
        output = Output("unit", "pass", stdout)
        await output.pump((await started(children, output, "seq 5"))[1])
        lines = output.follow(backlog=2)
        await output.pump((await started(children, output, "seq 6 7"))[1])
        assert [await anext(lines) for _ in range(4)] == ["4", "5", "6", "7"]
        del lines
        assert len(output.tail._followers) == 0


async def test_the_tail_shows_of_a_progress_bar_what_a_terminal_would(tmp_path: Path) -> None:
    output, _ = await run(tmp_path, "printf '1%%\\r2%%\\r3%%\\r\\nnext\\r\\n'")
    assert output.lines(5) == ["3%", "next"]


async def test_a_file_is_rotated_by_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "unit.log"
    await run(tmp_path, "seq 1000", f"file:{log}", partial(Output, rotate_size=1000, rotate_keep=2))
    kept = [tmp_path / "unit.log.2", tmp_path / "unit.log.1", log]
    assert sorted(tmp_path.glob("unit.log*")) == sorted(kept)
    assert all(path.stat().st_size <= 1000 for path in kept)
    numbers = [int(line) for path in kept for line in path.read_text().splitlines()]
    assert numbers == list(range(numbers[0], 1001))


async def test_a_file_that_was_moved_away_is_opened_anew(tmp_path: Path) -> None:
    log = tmp_path / "unit.log"
    file = RotatingFile(log, 1_000_000, 3)
    file.write_all([b"before\n"])
    log.rename(tmp_path / "moved")
    file.reopen()
    file.write_all([b"after\n"])
    file.close()
    assert log.read_bytes() == b"after\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
async def test_a_full_disk_never_stops_the_unit(tmp_path: Path) -> None:
    async with reaping() as children, container_stdout(tmp_path / "container") as stdout:
        output = Output("unit", "file:/dev/full", stdout)
        child, pipes = await started(children, output, "yes 'a line of log' | head -c 28000000; echo end")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(output.pump, pipes)
            await child.exited.wait()
        assert output.lines(1) == ["end"]


async def test_a_broken_stdout_is_no_busy_loop_and_no_crash(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    stdout = ContainerStdout(write_end)
    output = Output("unit", "pass", stdout)
    async with reaping() as children, trio.open_nursery() as nursery:
        await nursery.start(stdout.run)
        stdout.write(b"nobody hears this\n")
        await output.pump((await started(children, output, "seq 100000"))[1])
        while stdout.error is None:
            await trio.sleep(0.01)
        assert output.lines(1) == ["100000"]
        nursery.cancel_scope.cancel()
    os.close(write_end)


async def test_a_stdout_made_non_blocking_by_somebody_else_is_waited_for(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    stdout = ContainerStdout(write_end)
    async with reaping(), trio.open_nursery() as nursery:
        await nursery.start(stdout.run)
        stdout.write(b"x" * 1_000_000)
        stdout.write(b"end\n")
        written = await read_until(read_end, b"end\n")
        nursery.cancel_scope.cancel()
    os.close(read_end)
    os.close(write_end)
    assert len(written) == 1_000_004


async def test_what_a_sink_could_not_take_is_marked_in_place() -> None:
    written: list[bytes] = []
    sink = Sink(written.extend, "a file", buffer_bytes=10)
    writer = MarkingWriter(sink, lambda count: b"<%d lost>" % count)
    for number in range(5):
        writer.write((b"line %d\n" % number,))  # the task does not run yet
    async with trio.open_nursery() as nursery:
        await nursery.start(sink.run)
        assert await sink.flush(trio.current_time() + 10)
        writer.write((b"after\n",))
        assert await sink.flush(trio.current_time() + 10)
        nursery.cancel_scope.cancel()
    assert b"".join(written) == b"line 0\nline 1\n<21 lost>after\n"


async def test_what_we_say_ourselves_finds_room_that_units_have_filled(tmp_path: Path) -> None:
    """They are held back at its edge while somebody reads: there it is full for as long as they are busy."""
    async with container_stdout(tmp_path / "container", buffer_bytes=10) as stdout:
        unit = MarkingWriter(stdout, lambda count: b"<%d lost>" % count)
        unit.write((b"line of a unit\n",))  # the task does not run yet
        unit.write((b"another\n",))
        stdout.write(b"relaunched\n")
        for _ in range(100):
            stdout.write(b"x" * 1000)  # bounded all the same
    written = (tmp_path / "container").read_bytes()
    assert written.startswith(b"line of a unit\nrelaunched\nxxx")
    assert 60_000 < written.count(b"x") < 70_000
    assert written.count(b" lost>") == 1
    assert written.count(b"bytes of output are missing here") == 1


async def test_what_could_not_be_written_is_marked_and_told_when_it_can_be_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    written: list[bytes] = []
    full = [True]

    def write_all(items: Sequence[bytes]) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "no space left on device")
        written.extend(items)

    sink = Sink(write_all, "/var/log/unit.log", buffer_bytes=5)
    async with trio.open_nursery() as nursery:
        await nursery.start(sink.run)
        sink.offer((b"lost\n",))
        while sink.error is None:
            await trio.sleep(0.01)
        assert not await sink.flush(trio.current_time())  # it is tried again only after a while
        with trio.move_on_after(0.1) as held_back:
            await sink.room()
        assert not held_back.cancelled_caught  # and nobody has to wait for that
        assert await sink.flush(trio.current_time() + 10)
        full[0] = False
        sink.offer((b"after\n",))
        assert await sink.flush(trio.current_time() + 10)
        nursery.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == [
        "cannot write /var/log/unit.log: no space left on device; what units write there is lost meanwhile",
        "/var/log/unit.log can be written again",
    ]
    assert b"5 bytes of output are missing here" in written[0]
    assert written[1:] == [b"after\n"]


async def test_a_failed_spawn_leaves_no_descriptor(tmp_path: Path) -> None:
    output = Output("unit", "pass", ContainerStdout())
    before = set(os.listdir("/proc/self/fd"))
    output.open().close()
    pipes = output.open()
    pipes.close_write_ends()
    pipes.close()
    pipes.close()
    assert set(os.listdir("/proc/self/fd")) == before


async def test_invocations_leave_no_descriptor(tmp_path: Path) -> None:
    async with reaping() as children, container_stdout(tmp_path / "container") as stdout:
        output = Output("unit", "prefix", stdout)
        await output.pump((await started(children, output, "echo"))[1])
        before = set(os.listdir("/proc/self/fd"))
        for _ in range(50):
            child, pipes = await started(children, output, "echo")
            await output.pump(pipes)
            await child.exited.wait()
            children.release(child)
        assert set(os.listdir("/proc/self/fd")) == before
