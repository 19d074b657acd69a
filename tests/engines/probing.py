"""The readiness probes of the shipped unit files, asked of the real programs from inside their container."""

import re
import sys

from controller.demo.pod import Container
from supervisor.unit.model import HttpCheck, TcpCheck, Unit
from supervisor.unit.parse import load_units
from tests.pods.harness import UNITS, eventually

_ASK_HTTP = """
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=5)
except urllib.error.HTTPError as refusal:
    answer = refusal
print(answer.status, answer.read().decode())
"""
_ASK_TCP = """
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
with socket.create_connection((host, int(port)), 5) as connection:
    connection.sendall(sys.argv[2].encode())
    print(connection.recv(1000).decode())
"""


def ask_http(url: str) -> list[str]:
    """A command for inside a container: it prints the status and the body of what a GET brings."""
    return [sys.executable, "-I", "-c", _ASK_HTTP, url]


def ask_tcp(address: str, words: str) -> list[str]:
    """A command for inside a container: it sends the words and prints what comes first."""
    return [sys.executable, "-I", "-c", _ASK_TCP, address, words]


def shipped(name: str) -> Unit:
    return next(unit for unit in load_units([UNITS]) if unit.name == name)


async def until_probed(unit: Unit, container: Container) -> None:
    assert unit.probes.readiness is not None
    check = unit.probes.readiness.check
    if isinstance(check, HttpCheck):
        question, expected = ask_http(check.url), "^200 "
    else:
        assert isinstance(check, TcpCheck)
        question, expected = ask_tcp(check.address, check.send or ""), check.expect or ""

    async def ask() -> str:
        assert container.exit_code is None, container.log.read_text(errors="replace")
        return (await container.exec(question)).output

    await eventually(ask, lambda output: re.search(expected, output) is not None, f"{unit.name} to be ready")
