"""Carry out one check of a probe: None if it succeeded, else what is wrong, in words for people.

Thresholds are in `supervisor.unit.probing`, the running of probes in `probes.py`.
"""

from __future__ import annotations

import re

import trio

from supervisor.process.spawn import SpawnError
from supervisor.process.threads import NoThread, thread_shortage
from supervisor.service.commands import run_captured
from supervisor.service.connecting import why_not_connected
from supervisor.service.launch import Launch
from supervisor.service.processes import Processes
from supervisor.unit.model import ExecCheck, HttpCheck, TcpCheck
from supervisor.unit.values import MAX_PORT

MAX_ANSWER = 64 * 1024


async def check_http(check: HttpCheck) -> str | None:
    # Imported here because h11 costs the loop 7 ms, which the first spawn need not wait for.
    from supervisor.service import http_check

    try:
        with thread_shortage():  # for a name to be resolved
            answer = await http_check.fetch(check)
    except (http_check.NoAnswer, NoThread, ValueError) as error:
        return str(error)
    return http_check.complaint(check, answer)


async def check_tcp(check: TcpCheck) -> str | None:
    try:
        with thread_shortage():
            stream = await trio.open_tcp_stream(*split_address(check.address))
    except ValueError as error:
        return f"cannot connect to {check.address}: {error}"
    except OSError as error:
        return f"cannot connect to {check.address}: {why_not_connected(error)}"
    try:
        return await _converse(stream, check)
    except trio.BrokenResourceError as error:
        return f"{check.address}: the connection broke: {error.__cause__ or error}"
    finally:
        await trio.aclose_forcefully(stream)


async def check_exec(check: ExecCheck, processes: Processes, launch: Launch) -> str | None:
    """What it prints is read and, unless it fails, forgotten; cancelled, its processes are gone."""
    try:
        report = await run_captured(processes, launch, check.command)
    except SpawnError as error:
        return error.reason
    except OSError as error:  # descriptors have run out
        return f"{check.command.argv[0]} cannot be run: {error}"
    return None if report.failure is None else report.words


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT or [V6]:PORT; raise ValueError for anything else."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or not host:
        raise ValueError(f"expected HOST:PORT or [ADDRESS]:PORT, found {address!r}")
    if int(port) > MAX_PORT:
        raise ValueError(f"ports are at most {MAX_PORT}, found {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


async def _converse(stream: trio.abc.Stream, check: TcpCheck) -> str | None:
    if check.send is not None:
        await stream.send_all(check.send.encode())
    if check.expect is None:
        return None
    expected, answer = re.compile(check.expect), b""
    while len(answer) < MAX_ANSWER:
        part = await stream.receive_some(4096)
        answer += part
        if expected.search(answer.decode("utf-8", "replace")) is not None:
            return None
        if not part:
            break
    return f"{check.address} answered {answer[:80]!r}, which does not match {check.expect!r}"
