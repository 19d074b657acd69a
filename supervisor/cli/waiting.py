"""Show on a terminal what a command waits for. Whoever reads a pipe is told nothing that he did not ask for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click

from supervisor import wire
from supervisor.cli.client import CommandFailed, Supervisor
from supervisor.cli.motion import in_motion

EVERY_SEC = 1.0
_CLEAR_LINE = "\r\x1b[K"


@contextmanager
def shown_waiting(socket_path: Path | None, unit: str | None = None) -> Iterator[None]:
    """Inside, once a second, one line on standard error says what is on its way; afterwards it is gone.

    It asks beside the request that is waited for, by a thread: that request blocks.
    """
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(Supervisor(socket_path), unit, over), daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join(EVERY_SEC)
        click.echo(_CLEAR_LINE, nl=False, err=True)


def _tell(supervisor: Supervisor, unit: str | None, over: threading.Event) -> None:
    while not over.wait(EVERY_SEC):
        try:
            units = supervisor.get("/v1/units", wire.UnitsView)
            graph = supervisor.get("/v1/graph", wire.GraphView)
        except (CommandFailed, wire.WireError):
            return  # the request that is waited for has the better message
        if not over.is_set():
            width = max(20, _columns() - 1)
            click.echo(_CLEAR_LINE + in_motion(units, graph, unit, datetime.now(UTC))[:width], nl=False, err=True)


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns
