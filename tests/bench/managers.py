"""The process managers that are measured side by side: how each is told to run the same programs, and how it is asked.

Each gets the settings that make it quickest at what is measured, and otherwise its defaults: no back-off, no limit on
restarts, no wait before a program counts as started.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil
import trio

from controller.demo.engines import engines_directory

STOP_SEC = 10.0
REMOVAL_SEC = 5.0
VERSION_TIMEOUT_SEC = 20
SHOWN = 2000
FORK_LOOK_SEC = 0.002
INTO_NAMESPACE = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child=KILL", "--")

Programs = Mapping[str, Sequence[str]]
"""Command lines by name."""


class Manager(Protocol):
    @property
    def name(self) -> str:
        """With its version."""

    def prepare(self, directory: Path, programs: Programs) -> Sequence[str]:
        """Write its configuration into the empty directory; the command that runs it in the foreground."""

    def request(self, directory: Path) -> Request | None:
        """A question that its control socket answers once it can be managed; None: it has no such socket."""


@dataclass(frozen=True, slots=True)
class Request:
    socket: Path
    message: bytes
    """An HTTP/1.0 request, so that the end of the answer is the end of the connection."""


@dataclass(frozen=True, slots=True)
class Podvisor:
    program: Path
    name: str = "podvisor"

    def prepare(self, directory: Path, programs: Programs) -> Sequence[str]:
        units = directory / "units"
        units.mkdir()
        for name, argv in programs.items():
            (units / f"{name}.toml").write_text(
                f"[Service]\nExecStart = {json.dumps(list(argv))}\n"
                'Restart = "always"\nRestartSec = 0\nStartLimitBurst = 0\n'
            )
        settings = {"pod_ip": "127.0.0.1", "probe_port": 0, "socket": "socket", "state_dir": "state"}
        settings |= {key: str(directory / str(settings[key])) for key in ("socket", "state_dir")}
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        (directory / "podvisor.toml").write_text("\n".join(["[supervisor]", *lines, ""]))
        return [str(self.program), "run", "--config", str(directory / "podvisor.toml"), "--units", str(units)]

    def request(self, directory: Path) -> Request:
        return Request(directory / "socket", b"GET /v1/units HTTP/1.0\r\nHost: podvisor\r\n\r\n")


@dataclass(frozen=True, slots=True)
class Supervisord:
    program: Path
    name: str

    def prepare(self, directory: Path, programs: Programs) -> Sequence[str]:
        sections = [
            f"[supervisord]\nnodaemon=true\nlogfile={directory}/log\npidfile={directory}/pid\n"
            f"childlogdir={directory}\n[unix_http_server]\nfile={directory}/socket\n"
            "[rpcinterface:supervisor]\n"
            "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
        ]
        for name, argv in programs.items():
            command = shlex.join(argv).replace("%", "%%")
            sections.append(f"[program:{name}]\ncommand={command}\nautorestart=true\nstartsecs=0\n")
        (directory / "supervisord.conf").write_text("\n".join(sections))
        return [str(self.program), "-c", str(directory / "supervisord.conf")]

    def request(self, directory: Path) -> Request:
        body = b"<?xml version='1.0'?><methodCall><methodName>supervisor.getState</methodName></methodCall>"
        head = f"POST /RPC2 HTTP/1.0\r\nContent-Type: text/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        return Request(directory / "socket", head.encode() + body)


@dataclass(frozen=True, slots=True)
class Circus:
    program: Path
    name: str

    def prepare(self, directory: Path, programs: Programs) -> Sequence[str]:
        ends = [f"{name} = ipc://{directory}/{name}" for name in ("endpoint", "pubsub_endpoint")]
        sections = ["\n".join(["[circus]", *ends, ""])]
        for name, argv in programs.items():
            # stop_signal and the rest as they are; a program that dies is seen at the next check_delay, or earlier.
            sections.append(f"[watcher:{name}]\ncmd = {shlex.join(argv)}\nmax_retry = -1\n")
        (directory / "circus.ini").write_text("\n".join(sections))
        return [str(self.program), str(directory / "circus.ini")]

    def request(self, directory: Path) -> None:
        """It speaks ZeroMQ."""


@dataclass(frozen=True, slots=True)
class Dinit:
    program: Path
    name: str

    def prepare(self, directory: Path, programs: Programs) -> Sequence[str]:
        services = directory / "services"
        services.mkdir()
        for name, argv in programs.items():
            (services / name).write_text(
                f"type = process\ncommand = {shlex.join(argv)}\nrestart = yes\n"
                "restart-delay = 0\nrestart-limit-count = 0\n"
            )
        waits = "".join(f"waits-for = {name}\n" for name in programs)
        (services / "boot").write_text(f"type = internal\n{waits}")
        return [str(self.program), "-q", "-o", "-d", str(services), "-p", str(directory / "socket"), "-l", "/dev/null"]

    def request(self, directory: Path) -> None:
        """It speaks a binary protocol."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Podvisor, and those peers that are installed."""

    podvisor: Podvisor
    supervisord: Supervisord | None
    circus: Circus | None
    dinit: Dinit | None
    missing: Sequence[str]
    """How to get each of the others."""


def find_peers() -> Peers:
    """Looks beside the engines, where `--install-peers` puts them; dinit also on PATH."""
    home = peers_directory() / "bin"
    alone = _there(peers_directory() / "podvisor" / "bin" / "podvisor")
    supervisord, circus = _there(home / "supervisord"), _there(home / "circusd")
    dinit = _there(home / "dinit") or _on_path("dinit")
    missing = [
        f"{name} is not there: {how}"
        for name, program, how in (
            ("supervisord", supervisord, INSTALL),
            ("circus", circus, INSTALL),
            ("dinit", dinit, "install the package dinit where your system has one"),
        )
        if program is None
    ]
    if alone is None:
        missing.append(f"podvisor among our development tools, of which httpx loads some: {INSTALL} puts it alone")
    return Peers(
        Podvisor(alone or Path(sys.prefix) / "bin" / "podvisor"),
        Supervisord(supervisord, f"supervisord {_version(supervisord)}") if supervisord else None,
        Circus(circus, f"circus {_version(circus)}") if circus else None,
        Dinit(dinit, f"dinit {_version(dinit)}") if dinit else None,
        missing,
    )


INSTALL = "python -m tests.bench --install-peers"


def peers_directory() -> Path:
    """Where `--install-peers` puts its virtual environments."""
    return engines_directory() / "peers"


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    """The manager's own, as we number it."""

    @property
    def cpu_sec(self) -> float:
        """CPU time of the process, its dead threads included, in nanoseconds; the clock of clock_getcpuclockid(3)."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def host_pid(self, pid: int) -> int:
        """How we number a process below it that knows itself as `pid`. Raises ProcessLookupError."""
        for process in psutil.Process(self.pid).children(recursive=True):
            if _innermost_pid(process.pid) == pid:
                return int(process.pid)
        raise ProcessLookupError(f"no process below {self.pid} is known as {pid} in its namespace")


@asynccontextmanager
async def running(argv: Sequence[str], directory: Path, *, in_namespace: bool = False) -> AsyncIterator[Running]:
    """The command in a session of its own, as PID 1 of a new pid namespace if asked for; output in `directory`/output.

    Leaving asks it to end and waits at most STOP_SEC, then kills; also whatever of its descendants is left. Raises
    RuntimeError, in a group, if it ends by itself.
    """
    with (directory / "output").open("ab") as output:
        process = await trio.lowlevel.open_process(
            [*(INTO_NAMESPACE if in_namespace else ()), *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_must_not_end, process, output.name)
            yield Running(await _only_child(process.pid) if in_namespace else process.pid)
            nursery.cancel_scope.cancel(reason="it may end now")
    finally:
        descendants = _descendants(process)
        with trio.move_on_after(STOP_SEC, shield=True):
            if process.returncode is None:
                # unshare(1) waits for its only child, and passes no signal on to it.
                (descendants[0] if in_namespace and descendants else process).send_signal(signal.SIGTERM)
            await process.wait()
        if process.returncode is None:
            process.kill()
        for descendant in descendants:
            if descendant.is_running():  # the pid and the time of its start are compared
                descendant.kill()
        with trio.move_on_after(REMOVAL_SEC, shield=True):
            await process.wait()


def namespaces_refused() -> str | None:
    """Why there can be no pid namespaces here; None if there can."""
    tried = subprocess.run([*INTO_NAMESPACE, "true"], capture_output=True, text=True, check=False, timeout=20)
    return None if tried.returncode == 0 else tried.stderr.strip()


async def _must_not_end(process: trio.Process, output: str) -> None:
    code = await process.wait()
    said = Path(output).read_text(errors="replace")[-SHOWN:]
    raise RuntimeError(f"{process.args!r} ended with {code} in the middle of a measurement: {said}")


async def _only_child(pid: int) -> int:
    """Of unshare, as soon as it has forked."""
    while not (children := psutil.Process(pid).children()):
        await trio.sleep(FORK_LOOK_SEC)
    return int(children[0].pid)


def _innermost_pid(pid: int) -> int:
    """proc_pid_status(5): NSpid tells a process's number in each pid namespace, its own last."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    return next(int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid:"))


def _descendants(process: trio.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _there(program: Path) -> Path | None:
    return program if program.exists() else None


def _on_path(program: str) -> Path | None:
    found = shutil.which(program)
    return Path(found) if found else None


def _version(program: Path) -> str:
    said = subprocess.run(
        [str(program), "--version"], capture_output=True, text=True, check=False, timeout=VERSION_TIMEOUT_SEC
    )
    found = re.search(r"\d+(\.\d+)+", said.stdout)
    return found.group() if found else "of unknown version"
