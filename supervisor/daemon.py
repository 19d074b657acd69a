"""The supervisor as a program: what is started in which order, and how it ends.

The order is the point: ports first (a taken one costs nothing but a message), then the reaper, then the first
units, and the HTTP stack last, imported in a worker thread, because it takes longer than all the rest together
(trio-notes §6). The reaper and the container's stdout outlive the units, which need them to stop.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import click
import trio

from supervisor.configuration import Configuration, Options, configure
from supervisor.ending import (
    EXIT_CANNOT_LISTEN,
    EXIT_CONFIGURATION,
    EXIT_INTERNAL_ERROR,
    Ending,
    exit_after,
)
from supervisor.host import linux_host
from supervisor.listeners import Listeners, open_listeners
from supervisor.pod import Pod
from supervisor.process.children import Children
from supervisor.process.output import ContainerStdout
from supervisor.process.subreaper import become_subreaper, is_pid_one
from supervisor.settings import shutdown_timeout
from supervisor.shared import logs
from supervisor.shared.listening import CannotListen
from supervisor.signals import handle_signals
from supervisor.unit.errors import ConfigurationError

if TYPE_CHECKING:
    from types import ModuleType

log = logging.getLogger(__name__)

LAST_ACT_SEC = 5.0
"""Beyond the shutdown time-out; then the process is gone whatever hangs."""
FLUSH_SEC = 1.0


def run(options: Options, environment: Mapping[str, str]) -> int:
    """Run the supervisor until its end; the exit code (see `ending.py`)."""
    try:
        configuration = configure(options, environment)
    except ConfigurationError as error:
        for problem in error.problems:
            click.echo(f"podvisor: {problem}", err=True)
        return EXIT_CONFIGURATION
    supervisor = configuration.settings.supervisor
    logs.configure(supervisor.log_level, supervisor.log_format)
    for warning in configuration.warnings:
        log.warning("%s", warning)
    try:
        listeners = open_listeners(configuration)
    except CannotListen as error:
        click.echo(f"podvisor: {error}", err=True)
        return EXIT_CANNOT_LISTEN
    try:
        return trio.run(supervise, configuration, listeners)
    except Exception:  # the last frame of PID 1: say what happened and let the container restart
        log.exception("internal error: this is a bug of podvisor; all units were stopped")
        return EXIT_INTERNAL_ERROR
    finally:
        listeners.remove_socket_file()


async def supervise(configuration: Configuration, listeners: Listeners) -> int:
    """The life of one supervisor; returns its exit code. Cancelled: every unit's tree is stopped all the same."""
    ending = Ending()
    if not is_pid_one():
        become_subreaper()
    async with trio.open_nursery() as base:
        await base.start(handle_signals, ending)
        children = Children()
        await base.start(children.run)
        stdout = ContainerStdout()
        await base.start(stdout.run)
        pod = Pod(configuration, linux_host(children, stdout, configuration.units), ending, nm_port=listeners.nm_port)
        budget = shutdown_timeout(configuration.settings.supervisor, configuration.units)
        await live(
            pod,
            ending,
            budget,
            go_online=partial(_go_online, pod, configuration, listeners),
            set_last_deadline=lambda: exit_after(budget + LAST_ACT_SEC, ending.exit_code),
        )
        await stdout.flush(trio.current_time() + FLUSH_SEC)
        base.cancel_scope.cancel(reason="everything has stopped")
    return ending.exit_code


async def live(
    pod: Pod,
    ending: Ending,
    shutdown_sec: float,
    *,
    go_online: Callable[[], Awaitable[None]],
    set_last_deadline: Callable[[], None],
) -> None:
    """From the first unit until, after `ending` was asked for, everything has stopped, in `shutdown_sec` at most."""
    async with trio.open_nursery() as nursery:
        await nursery.start(pod.run)
        nursery.start_soon(go_online)
        await ending.requested.wait()
        set_last_deadline()
        pod.leave()
        await pod.stop(trio.current_time() + shutdown_sec)
        nursery.cancel_scope.cancel(reason=ending.reason)


async def _go_online(pod: Pod, configuration: Configuration, listeners: Listeners) -> None:
    if configuration.coordinated:
        await trio.to_thread.run_sync(importlib.import_module, "supervisor.engine.link")
    online: ModuleType = await trio.to_thread.run_sync(importlib.import_module, "supervisor.online")
    await online.go_online(pod, configuration, listeners)
