"""`podvisor run -- COMMAND`: one command under a proper PID 1, in the place of tini or dumb-init.

The command keeps our standard streams and is sent every signal that we are sent. Its end is ours: its whole tree is
ended with it, orphans are reaped meanwhile, and its exit status becomes ours (128+n for signal n, 126 and 127 for a
command that cannot be executed).
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import AsyncIterator, Sequence

import click
import trio

from supervisor.process.children import Child, Children, ExitStatus, Spawn, SpawnError
from supervisor.process.subreaper import become_subreaper, is_pid_one
from supervisor.process.tree import stop_tree

REST_GRACE_SEC = 3.0
"""For what the command leaves behind."""

FORWARDED = tuple(
    signal.valid_signals()
    - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU}
    - {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGPROF, signal.SIGTRAP, signal.SIGSYS}
)
"""All that can be caught and mean something to a command; the second line are faults of our own, not messages."""


async def run_command(argv: Sequence[str]) -> int:
    """The exit status for our own end. Cancelled: the command is left to the kernel's end of our namespace."""
    if not is_pid_one():
        become_subreaper()
    async with trio.open_nursery() as nursery:
        children = Children()
        await nursery.start(children.run)
        with trio.open_signal_receiver(*FORWARDED) as signals:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
            status = await _run(children, nursery, argv, signals)
        nursery.cancel_scope.cancel(reason="the command has ended")
    return status


async def _run(children: Children, nursery: trio.Nursery, argv: Sequence[str], signals: AsyncIterator[int]) -> int:
    invocation_id = uuid.uuid4().hex
    environment = {**os.environ, "INVOCATION_ID": invocation_id}
    try:
        child = await children.spawn(Spawn(tuple(argv), environment, stdin=0))
    except SpawnError as error:
        click.echo(f"podvisor: {error.reason}", err=True)
        return error.exit_status
    nursery.start_soon(_forward, children, child, signals)
    await child.exited.wait()
    assert child.status is not None, "set before `exited`"
    status = child.status
    await stop_tree(
        children,
        child,
        invocation_id=invocation_id,
        mode="mixed",
        signal=signal.SIGTERM,
        grace_sec=REST_GRACE_SEC,
        claim_unowned=True,
    )
    return exit_status_of(status)


async def _forward(children: Children, child: Child, signals: AsyncIterator[int]) -> None:
    async for number in signals:
        children.signal_group(child, number)


def exit_status_of(status: ExitStatus) -> int:
    """As a shell tells it."""
    if status.code is not None:
        return status.code
    assert status.signal is not None, "one of both is set"
    name, _, above = status.signal.partition("+")  # SIGRTMIN+3
    return 128 + signal.Signals[name] + int(above or 0)
