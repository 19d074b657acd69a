"""The supervisor as a program: what is started in which order, and how it ends.

The order is the point: ports first (a taken one costs nothing but a message), then the reaper, then the first
units, and the HTTP stack last, imported in a worker thread, because it takes longer than all the rest together
(trio-notes §6). What units need to stop, the reaper above all, outlives them however the end comes.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import click
import trio
from msgspec.structs import replace

from supervisor import container, life
from supervisor.configuration import Configuration, Options, configure, local_ranks
from supervisor.ending import (
    EXIT_CANNOT_LISTEN,
    EXIT_CONFIGURATION,
    EXIT_INTERNAL_ERROR,
    Ending,
)
from supervisor.host import linux_host
from supervisor.listeners import Listeners, open_listeners
from supervisor.pod import Pod
from supervisor.process.cgroup import Cgroups
from supervisor.process.children import Children, stop_ignoring_signals
from supervisor.process.output import ContainerStdout
from supervisor.process.own_cgroup import OwnCgroup, find_own_cgroup
from supervisor.process.sink import Sink
from supervisor.process.subreaper import become_subreaper, is_pid_one
from supervisor.process.threads import in_thread_or_here
from supervisor.service.credentials import Secrets
from supervisor.shared import logs
from supervisor.shared.causes import log_causes
from supervisor.shared.last_deadline import LastDeadline
from supervisor.shared.listening import CannotListen
from supervisor.signals import handle_signals
from supervisor.unit.errors import ConfigurationError
from supervisor.version import VERSION

if TYPE_CHECKING:
    from types import ModuleType

log = logging.getLogger(__name__)

LAST_ACT_SEC = 5.0
"""Beyond the shutdown time-out; then the process is gone whatever hangs."""
FLUSH_SEC = 1.0
STDOUT, STDERR = 1, 2


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
    found = container.warnings(container.look(), configuration.units, local_ranks(configuration))
    for warning in (*configuration.warnings, *_of_anonymous_callers(configuration), *found):
        log.warning("%s", warning)
    try:
        listeners = open_listeners(configuration)
    except CannotListen as error:
        click.echo(f"podvisor: {error}", err=True)
        return EXIT_CANNOT_LISTEN
    try:
        with life.alone_in(configuration.state_dir):
            return _live(configuration, listeners)
    except life.DirectoryTaken as error:
        click.echo(f"podvisor: {error}", err=True)
        return EXIT_CANNOT_LISTEN
    finally:
        listeners.control.remove()


def _live(configuration: Configuration, listeners: Listeners) -> int:
    last_deadline = LastDeadline()
    previous = life.begin(configuration.state_dir, configuration.boot_id)
    try:
        return trio.run(supervise, replace(configuration, previous_container=previous), listeners, last_deadline)
    except Exception as error:  # noqa: BLE001 - the last frame of PID 1: say what happened, the container restarts
        log_causes(log, "internal error: this is a bug of podvisor; all units were stopped: %r", error)
        return EXIT_INTERNAL_ERROR
    finally:
        life.end(configuration.state_dir, configuration.boot_id)


async def supervise(configuration: Configuration, listeners: Listeners, last_deadline: LastDeadline) -> int:
    """The life of one supervisor; returns its exit code. Cancelled: every unit's tree is stopped all the same."""
    ending, section = Ending(), configuration.settings.supervisor
    if not is_pid_one():
        become_subreaper()
    stop_ignoring_signals()
    cgroup = find_own_cgroup()
    children, stdout, stderr = Children(Cgroups(cgroup.path)), ContainerStdout(STDOUT), ContainerStdout(STDERR)
    secrets = Secrets()
    host = linux_host(children, stdout, configuration.units, secrets)
    pod = Pod(configuration, host, ending, nm_port=listeners.nm_port)

    def dump(text: bytes) -> None:
        stderr.write(secrets.redact_bytes(text))

    def reopen() -> None:
        pod.units.reopen_logs()
        listeners.control.suspected.announce()

    # Each outlives what is nested in it, also when that ends by an error: without a reaper no stop is ever verified.
    async with (
        _written(stderr),
        _written(stdout),
        _beside(children.run),
        _beside(
            partial(handle_signals, ending, last_deadline, section.exit_on_term, dump, reopen, pod.reloads.hang_up)
        ),
    ):
        with logs.written_by(stderr.write), logs.redacted_by(secrets.redact):
            _greet(configuration)
            _tell_evidence(cgroup)
            await live(
                pod,
                ending,
                go_online=partial(_go_online, pod, configuration, listeners),
                set_last_deadline=lambda: last_deadline.exit_after(
                    pod.shutdown_sec() + LAST_ACT_SEC, _exit_code_now(ending)
                ),
            )
    return ending.exit_code


async def live(
    pod: Pod,
    ending: Ending,
    *,
    go_online: Callable[[], Awaitable[None]],
    set_last_deadline: Callable[[], None],
) -> None:
    """From the first unit until, after `ending` was asked for, everything has stopped, in `pod.shutdown_sec()` at most.

    An error of our own stops all units at once, in no order, and is raised when they have stopped.
    """
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(pod.run)
            nursery.start_soon(go_online)
            await ending.requested.wait()
        finally:
            set_last_deadline()
        began = trio.current_time()
        deadline = began + pod.shutdown_sec()
        await pod.leave(deadline)
        await pod.stop(deadline)
        await pod.part()
        log.info("ended in %.1f s", trio.current_time() - began)
        nursery.cancel_scope.cancel(reason=ending.reason)


def _of_anonymous_callers(configuration: Configuration) -> Iterator[str]:
    """At every start: it was said once, in a file that nobody looks at any more."""
    settings = configuration.settings
    if not settings.auth.allow_anonymous or settings.auth.token_file or settings.tls.client_ca:
        return
    if configuration.coordinated or settings.supervisor.operations_listen is not None:
        yield "everybody who reaches this pod's ports may command it: auth.allow_anonymous is set"


def _greet(configuration: Configuration) -> None:
    names = ", ".join(unit.name for unit in configuration.units)
    log.info("podvisor %s starts %s", VERSION, names, extra={"boot_id": configuration.boot_id, "pid": os.getpid()})


def _tell_evidence(cgroup: OwnCgroup) -> None:
    if cgroup.path is None:
        log.info("no cgroups are used: %s; what escapes from a unit is found by the other evidence", cgroup.words)
    else:
        log.info("engines and units with limits start in cgroups of their own, below %s", cgroup.words)
    if cgroup.cleared or cgroup.stuck:
        log.warning(
            "cgroups of an earlier supervisor were here: %d removed with what ran in them, %d in which something "
            "does not end%s",
            len(cgroup.cleared),
            len(cgroup.stuck),
            "".join(f", {name}" for name in cgroup.stuck),
        )


def _exit_code_now(ending: Ending) -> int:
    return ending.exit_code if ending.requested.is_set() else EXIT_INTERNAL_ERROR


@asynccontextmanager
async def _beside(run: Callable[..., Awaitable[None]]) -> AsyncIterator[None]:
    """Run something from before the block until after it."""
    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        yield
        nursery.cancel_scope.cancel(reason="everything has stopped")


@asynccontextmanager
async def _written(sink: Sink) -> AsyncIterator[None]:
    """Write what the sink is given, and at the end, for a moment, what is left in it."""
    async with _beside(sink.run):
        try:
            yield
        finally:
            limit = trio.current_time() + FLUSH_SEC
            with trio.CancelScope(deadline=limit, shield=True):
                await sink.flush(limit)


async def _go_online(pod: Pod, configuration: Configuration, listeners: Listeners) -> None:
    if configuration.coordinated:
        await in_thread_or_here(partial(importlib.import_module, "supervisor.engine.link"))
    online: ModuleType = await in_thread_or_here(partial(importlib.import_module, "supervisor.online"))
    await online.go_online(pod, configuration, listeners)
