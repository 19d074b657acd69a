"""What the signals of the supervisor itself mean (design 3).

SIGTERM and SIGINT end it, SIGHUP reloads the unit files, SIGQUIT shows what it does, SIGUSR1 opens log files anew and
mends the control socket.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable

import trio

from supervisor.ending import EXIT_BY_SIGNAL, EXIT_OK, Ending
from supervisor.shared.last_deadline import LastDeadline

log = logging.getLogger(__name__)

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
END = (signal.SIGTERM, signal.SIGINT)
THIRD_TIME_SEC = 1.0


async def handle_signals(
    ending: Ending,
    last_deadline: LastDeadline,
    exit_on_term: str,
    write_stderr: Callable[[bytes], None],
    reopen: Callable[[], None],
    reload: Callable[[], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Until cancelled. From `started` on the signals are unblocked; none sent before is lost.

    `exit_on_term`: "success" or "signal", which end SIGTERM is for.
    """
    with trio.open_signal_receiver(*HANDLED) as signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        task_status.started()
        asked = 0
        async for number in signals:
            if number in END:
                asked += 1
                code = EXIT_BY_SIGNAL + number if exit_on_term == "signal" else EXIT_OK
                _end(ending, last_deadline, asked, signal.Signals(number).name, code)
            elif number == signal.SIGQUIT:
                write_stderr(_all_tasks().encode())
            elif number == signal.SIGUSR1:
                log.info("SIGUSR1: log files are opened anew; the control socket is made anew if it is lost")
                reopen()
            else:
                reload()


def _end(ending: Ending, last_deadline: LastDeadline, asked: int, name: str, exit_code: int) -> None:
    """Once: an orderly stop; twice: stop graces are over; three times: now."""
    if asked == 1:
        ending.request(exit_code, f"{name} received")
    elif asked == 2:
        log.warning("%s again: killing what still runs", name)
        ending.hurry()
    else:
        log.error("%s a third time: leaving now", name)
        last_deadline.exit_after(THIRD_TIME_SEC, ending.exit_code)


def _all_tasks() -> str:
    """The task tree with each task's place, for a supervisor that seems stuck."""
    lines: list[str] = []
    root = trio.lowlevel.current_root_task()
    if root is not None:
        _describe(root, 0, lines)
    return "\n".join(lines) + "\n"


def _describe(task: trio.lowlevel.Task, depth: int, lines: list[str]) -> None:
    # The innermost frame of nearly every task is trio's own; where *our* code waits is what helps.
    places = [f"{frame.f_code.co_filename}:{line}" for frame, line in task.iter_await_frames()]
    place = next((found for found in reversed(places) if "/trio/" not in found), "running")
    lines.append(f"{'  ' * depth}{task.name}  {place}")
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            _describe(child, depth + 1, lines)
