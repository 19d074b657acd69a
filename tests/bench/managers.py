"""The process managers that are measured side by side: how each is told to run the same programs, and how it is asked.

Each gets the settings that make it quickest at what is measured, and otherwise its defaults: no back-off, no limit on
restarts, no wait before a program counts as started.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controller.demo.engines import engines_directory

VERSION_TIMEOUT_SEC = 20

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
