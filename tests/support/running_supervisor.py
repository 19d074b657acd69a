"""`podvisor run` as a process: unit files written, started, spoken to, ended, and nothing of it left."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import trio

from supervisor import wire
from supervisor.process import procfs
from supervisor.process.subreaper import become_subreaper
from tests.support.real_processes import TIMEOUT_SEC

PODVISOR = (sys.executable, "-m", "supervisor")
FOREVER = ["sleep", "600"]

Sections = Mapping[str, Mapping[str, object]]


def toml(sections: Sections) -> str:
    """Tables of plain values: as far as that goes, JSON's values are TOML's."""
    return "\n".join(
        f"[{section}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        for section, keys in sections.items()
    )


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def service(*exec_start: str, **keys: object) -> Sections:
    return {"Service": {"ExecStart": list(exec_start), **keys}}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Lines:
    """What a process has said on one stream."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self._lines: list[str] = []
        self._news = trio.Event()

    def __str__(self) -> str:
        return "\n".join(self._lines)

    def matching(self, pattern: str) -> list[re.Match[str]]:
        return [match for line in self._lines if (match := re.search(pattern, line))]

    async def saw(self, pattern: str, count: int = 1) -> re.Match[str]:
        """The match in the `count`th line that matches, once there is one. Fails if the stream ends before."""
        with trio.move_on_after(TIMEOUT_SEC):
            while not self.ended.is_set() and len(self.matching(pattern)) < count:
                await self._news.wait()
        found = self.matching(pattern)
        assert len(found) >= count, f"it said {pattern!r} {len(found)} times, not {count}, but:\n{self}"
        return found[count - 1]

    async def read(self, stream: trio.abc.ReceiveStream) -> None:
        pending = b""
        async for data in stream:
            *whole, pending = (pending + data).split(b"\n")
            self._add(whole)
        self.ended.set()
        self._add([pending] if pending else [])

    def _add(self, lines: Sequence[bytes]) -> None:
        self._lines += (line.decode("utf-8", "replace") for line in lines)
        self._news.set()
        self._news = trio.Event()


class Running:
    """A process of ours, and what it says."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.stdout = Lines()
        self.stderr = Lines()

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it has ended and nobody holds its standard error any more."""
        with trio.fail_after(TIMEOUT_SEC):
            code = await self.process.wait()
            await self.stderr.ended.wait()
        return code


class RunningSupervisor(Running):
    def __init__(self, process: trio.Process, socket_path: Path) -> None:
        super().__init__(process)
        self.socket = socket_path

    async def online(self) -> str:
        """The URL of its probe port, once it serves."""
        match = await self.stderr.saw(r" online .*probe_port=(\d+)")
        return f"http://127.0.0.1:{match[1]}"

    async def moved(self, unit: str, before: str, after: str, count: int = 1) -> str:
        """Until a unit has moved so for the `count`th time; the reason."""
        match = await self.stderr.saw(rf" {unit}: {before} -> {after}: (.*)", count)
        return match[1]

    async def started(self, unit: str, count: int = 1) -> int:
        """The pid of a unit, once it was started for the `count`th time."""
        match = await self.stderr.saw(rf" {unit}: start -> \S+: started as pid (\d+)", count)
        return int(match[1])

    @asynccontextmanager
    async def api(self) -> AsyncIterator[httpx.AsyncClient]:
        """Its operations API, once it serves."""
        await self.online()
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://podvisor", timeout=TIMEOUT_SEC) as client:
            yield client

    async def units(self) -> dict[str, wire.UnitView]:
        async with self.api() as client:
            views = wire.decode(wire.UnitsView, (await client.get("/v1/units")).content)
        return {view.name: view for view in views.units}

    async def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`podvisor …`, told of this supervisor."""
        return await podvisor(*arguments, PODVISOR_SOCKET=str(self.socket))


def socket_of(directory: Path) -> Path:
    return directory / "podvisor.sock"


def write_files(directory: Path, units: Mapping[str, Sections | str], settings: Sections | None = None) -> list[str]:
    """The arguments of `podvisor run` for unit files and settings written below `directory`."""
    own = {"probe_port": 0, "state_dir": str(directory / "state"), "drain_sec": 0, "drain_delay_sec": 0}
    settings = settings or {}
    config, folder = directory / "podvisor.toml", directory / "units"
    config.write_text(toml({**settings, "supervisor": {**own, **settings.get("supervisor", {})}}))
    folder.mkdir(exist_ok=True)
    for name, sections in units.items():
        (folder / f"{name}.toml").write_text(sections if isinstance(sections, str) else toml(sections))
    return ["run", "--config", str(config), "--units", str(folder), "--socket", str(socket_of(directory))]


def environment(**variables: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], **variables}


@asynccontextmanager
async def supervisor(
    directory: Path,
    units: Mapping[str, Sections | str],
    settings: Sections | None = None,
    *,
    stdout: int = subprocess.PIPE,
    socket_path: Path | None = None,
    command: Sequence[str] = PODVISOR,
    **variables: str,
) -> AsyncIterator[RunningSupervisor]:
    """`podvisor run`, just begun. At the end everything that is left of it is killed."""
    socket_path = socket_path or socket_of(directory)
    arguments = [*write_files(directory, units, settings)[:-1], str(socket_path)]
    process = await _open([*command, *arguments], subprocess.DEVNULL, stdout, variables)
    supervisor = RunningSupervisor(process, socket_path)
    async with _held(supervisor):
        yield supervisor


@asynccontextmanager
async def program(*command: str, stdin: int = subprocess.PIPE) -> AsyncIterator[Running]:
    """Any program, just begun. At the end everything that is left of it is killed."""
    running = Running(await _open(command, stdin, subprocess.PIPE, {}))
    async with _held(running):
        yield running


async def podvisor(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    with trio.fail_after(TIMEOUT_SEC):
        done = await trio.run_process(
            [*PODVISOR, *arguments],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=environment(**variables),
        )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def left_behind() -> dict[int, str]:
    """What a process of ours has left when it ended: orphans fall to this process."""
    return {pid: procfs.command_of(pid) or "zombie" for pid in procfs.children_of_ours()}


async def blocks(pid: int, number: signal.Signals) -> None:
    """Until a process holds this signal back (proc_pid_status(5), SigBlk)."""
    with trio.fail_after(TIMEOUT_SEC):
        while not _blocked(pid) >> (number - 1) & 1:
            await trio.sleep(0.001)  # another process blocks it: there is no event to wait for


def _blocked(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigBlk:")).split()[1], 16)


async def _open(command: Sequence[str], stdin: int, stdout: int, variables: Mapping[str, str]) -> trio.Process:
    become_subreaper()
    return await trio.lowlevel.open_process(
        list(command), stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=environment(**variables)
    )


@asynccontextmanager
async def _held(running: Running) -> AsyncIterator[None]:
    process = running.process
    others = frozenset(procfs.children_of_ours()) - {process.pid}
    async with trio.open_nursery() as nursery:
        assert process.stderr is not None
        nursery.start_soon(running.stderr.read, process.stderr)
        if process.stdout is not None:
            nursery.start_soon(running.stdout.read, process.stdout)
        try:
            yield
        finally:
            if process.poll() is None:
                process.kill()
            with trio.move_on_after(10, shield=True):
                await process.wait()
            _kill_all_but(others)
            nursery.cancel_scope.cancel()
            print(running.stderr)  # pytest shows it if the test has failed


def _kill_all_but(others: frozenset[int]) -> None:
    while pids := frozenset(procfs.children_of_ours()) - others:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
