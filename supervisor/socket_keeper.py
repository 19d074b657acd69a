"""Serves the operations API on the control socket, also after somebody has removed its file."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import trio

from supervisor.control_socket import ControlSocket
from supervisor.process.departures import Departures
from supervisor.process.threads import in_thread_or_here
from supervisor.service.changes import Changes
from supervisor.shared.listening import CannotListen
from supervisor.shared.serving import Application, serve

log = logging.getLogger(__name__)


async def keep_serving(
    application: Application,
    control: ControlSocket,
    listener: socket.socket,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on `listener`, and on another one whenever the file is found to be gone. Until cancelled.

    It is looked for when something leaves its directory and when somebody suspects it (SIGUSR1).
    """
    with _departures() as departures:
        async with trio.open_nursery() as nursery:
            served = trio.Event()
            await nursery.start(serve, application, listener, served)
            task_status.started()
            if departures is not None:
                nursery.start_soon(_suspect, departures, control.suspected)
            while True:
                suspected = control.suspected.next()
                fresh = await _made_anew(control) if control.is_lost else None
                if fresh is not None:
                    served.set()  # nobody can reach the old one any more; conversations on it get a moment to end
                    served = trio.Event()
                    await nursery.start(serve, application, fresh, served)
                if departures is not None:
                    with suppress(OSError):  # the directory is gone and could not be made
                        departures.watch(control.path.parent)
                if fresh is not None and control.is_lost:
                    continue  # it went before the directory was watched
                await suspected.wait()


async def _made_anew(control: ControlSocket) -> socket.socket | None:
    try:
        listener = await in_thread_or_here(control.listen)
    except CannotListen as error:
        log.error("the control socket is lost: %s; once that is mended: SIGUSR1", error)
        return None
    log.warning("the control socket %s was gone: made anew", control.path)
    return listener


@contextmanager
def _departures() -> Iterator[Departures | None]:
    """None where they cannot be watched; then SIGUSR1 remains."""
    try:
        departures = Departures()
    except OSError as error:
        log.info("whether the control socket is removed cannot be watched: %s; SIGUSR1 makes it anew", error.strerror)
        yield None
        return
    try:
        yield departures
    finally:
        departures.close()


async def _suspect(departures: Departures, suspected: Changes) -> None:
    while True:
        await departures.wait()
        suspected.announce()
