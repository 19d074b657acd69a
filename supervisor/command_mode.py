"""`podvisor run -- COMMAND`: one command under a proper PID 1, in the place of tini or dumb-init.

The command keeps our standard streams, inherits of signals what we inherited, and is sent every signal that we are
sent. On a terminal it is our job in the foreground. Its end is ours: its whole tree is ended with it, orphans are
reaped meanwhile, and its exit status becomes ours (128+n for signal n, 126 and 127 for a command that cannot be
executed).
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial

import click
import msgspec
import trio

from supervisor.command_signals import SUSPENDING, order_for, reception
from supervisor.process.children import Child, Children, ExitStatus, Spawn, SpawnError, ignored_signals
from supervisor.process.subreaper import become_subreaper, is_pid_one
from supervisor.process.threads import NoThread, in_thread
from supervisor.process.tree import stop_tree
from supervisor.terminal import Terminal, controlling_terminal

REST_GRACE_SEC = 3.0
"""For what the command leaves behind."""
REFUSED = b"podvisor: may not pass signals on to the command: it runs as another user, and CAP_KILL is missing\n"
STDIN, STDOUT, STDERR = 0, 1, 2


class CommandLine(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    blocked_signals: frozenset[int] = frozenset()
    """As we were started: the command is started so, too."""
    rewrites: Mapping[int, int | None] = msgspec.field(default_factory=dict)
    success_exit_statuses: frozenset[int] = frozenset()


async def run_command(line: CommandLine) -> int:
    """The exit status for our own end. Cancelled: the command is left to the kernel's end of our namespace."""
    if not is_pid_one():
        become_subreaper()
    received = reception(ignored_signals())
    signal.pthread_sigmask(signal.SIG_BLOCK, received.awaited)  # before there is a thread that would not block them
    async with trio.open_nursery() as nursery:
        children = Children()
        await nursery.start(children.run)
        with trio.open_signal_receiver(*received.handled) as signals:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, received.handled)
            try:
                job = await _start(children, line)
            except SpawnError as error:
                click.echo(f"podvisor: {error.reason}", err=True)
                status = error.exit_status
            else:
                nursery.start_soon(_forward_handled, job, signals)
                nursery.start_soon(_forward_awaited, job, received.awaited)
                nursery.start_soon(_tell_of_refusal, job)
                status = exit_status_of(await job.ended())
        nursery.cancel_scope.cancel(reason="the command has ended")
    return 0 if status in line.success_exit_statuses else status


async def _start(children: Children, line: CommandLine) -> _Job:
    """Raise SpawnError."""
    terminal = controlling_terminal()
    invocation_id = uuid.uuid4().hex
    spawn = Spawn(
        line.argv,
        {**os.environ, "INVOCATION_ID": invocation_id},
        stdin=STDIN,
        stdout=STDOUT,
        stderr=STDERR,
        blocked_signals=line.blocked_signals,
        stays_in_session=terminal is not None,
        working_directory=_leave_directory(),
    )
    return _Job(children, await children.spawn(spawn), terminal, line.rewrites, invocation_id)


def _leave_directory() -> str | None:
    """Where we were, which is the command's: an init holds no directory that somebody may want to unmount.

    None if it cannot be entered by its path; then we stay, and the command inherits it.
    """
    try:
        directory = os.getcwd()
        os.chdir(directory)
        os.chdir("/")
    except OSError:
        return None
    return directory


async def _forward_handled(job: _Job, signals: AsyncIterator[int]) -> None:
    async for number in signals:
        job.pass_on(number)


async def _forward_awaited(job: _Job, numbers: AbstractSet[int]) -> None:
    """Cancelled: a thread is left behind that takes one of these signals at most and does nothing with it."""
    try:
        while True:
            job.pass_on(await in_thread(partial(signal.sigwait, numbers), abandon_on_cancel=True))
    except NoThread:
        return  # these signals stay blocked: at the limit of processes that is the least harm


async def _tell_of_refusal(job: _Job) -> None:
    """Once; we go on: the command's end and the orphans are ours still. In a thread, for nobody may read our stderr."""
    await job.refused.wait()
    with suppress(OSError):
        await in_thread(partial(os.write, STDERR, REFUSED), abandon_on_cancel=True)


class _Job:
    """The command, and the terminal if there is one."""

    def __init__(
        self,
        children: Children,
        child: Child,
        terminal: Terminal | None,
        rewrites: Mapping[int, int | None],
        invocation_id: str,
    ) -> None:
        self._children = children
        self._child = child
        self.refused = trio.Event()
        """The command has become a user whom we may not signal."""
        self._terminal = terminal
        self._rewrites = rewrites
        self._invocation_id = invocation_id
        if terminal is not None:
            self._resume(signal.SIGCONT)  # it may have asked for the terminal before it had it

    def pass_on(self, number: int) -> None:
        order = order_for(number, self._rewrites)
        if number == signal.SIGCONT:
            self._resume(order.send)
        elif order.send is not None:
            self._send(order.send)
        if order.suspend:
            self._suspend()

    async def ended(self) -> ExitStatus:
        """How the command ended, once its whole tree has."""
        await self._child.exited.wait()
        assert self._child.status is not None, "set before `exited`"
        status = self._child.status
        await stop_tree(
            self._children,
            self._child,
            invocation_id=self._invocation_id,
            mode="mixed",
            signal=signal.SIGTERM,
            grace_sec=REST_GRACE_SEC,
            claim_unowned=True,
        )
        if self._terminal is not None:
            self._terminal.take_back()
        return status

    def _send(self, number: int) -> None:
        try:
            self._children.signal_group(self._child, number)
        except PermissionError:
            self.refused.set()

    def _stopped(self, number: int) -> None:
        """The command was stopped, by Ctrl-Z or by itself. Who started us is to see us stopped."""
        assert self._terminal is not None, "nobody else asks to be told"
        if self._terminal.shell_waits:
            self._suspend()
        elif number in SUSPENDING:
            self._send(signal.SIGCONT)  # nobody else could wake it up

    def _suspend(self) -> None:
        """As PID 1 the kernel does not let us stop."""
        self._child.stopped = None  # we know
        if self._terminal is not None:
            self._terminal.take_back()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _resume(self, number: int | None) -> None:
        if self._terminal is not None and self._terminal.ours:
            self._terminal.lend(self._child.pid)
        if number is not None:
            self._send(number)
        if self._terminal is not None:
            self._child.stopped = self._stopped


def exit_status_of(status: ExitStatus) -> int:
    """As a shell tells it."""
    if status.code is not None:
        return status.code
    assert status.signal is not None, "one of both is set"
    name, _, above = status.signal.partition("+")  # SIGRTMIN+3
    return 128 + signal.Signals[name] + int(above or 0)
