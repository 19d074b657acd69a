"""What the processes of one invocation say of it by sd_notify(3): who may, what it means, and to whom it is told.

What follows from it is decided in the unit's machine.
"""

from __future__ import annotations

import errno
import logging
import math
import os
from collections.abc import Callable

import trio

from supervisor.process import procfs
from supervisor.process.child import Child
from supervisor.service.notify import MAX_MESSAGE, Datagram, NotifySocket
from supervisor.service.processes import Processes
from supervisor.shared.error_window import ErrorWindow
from supervisor.unit import events as ev
from supervisor.unit.model import NotifyAccess
from supervisor.unit.start_clock import ProgressKind

log = logging.getLogger(__name__)

LOOK_SEC = 2.0
"""For finding out whose a process is: keep-alives wait behind it."""
MAX_ERROR = 200
MAX_QUOTED = 80
_USEC_INFINITY = 2**64 - 1
_MAX_ERRNO = 4095


class Unreadable(Exception):
    """An assignment with a value that means nothing; the message says what was expected."""


class Notifications:
    """Of one invocation. Close it."""

    def __init__(
        self,
        unit: str,
        processes: Processes,
        invocation_id: str,
        access: NotifyAccess,
        ready: Callable[[], None],
        tell: Callable[[ev.Event], None],
    ) -> None:
        """Raise OSError when descriptors have run out."""
        self._socket = NotifySocket()
        self._unit = unit
        self._processes = processes
        self._invocation_id = invocation_id
        self._access = access
        self._ready = ready
        self._tell = tell
        self._window = ErrorWindow()

    @property
    def address(self) -> str:
        return self._socket.address

    async def listen(self, child: Child) -> None:
        """Until cancelled."""

        async def take(datagram: Datagram) -> None:
            await self._take(child, datagram)

        await self._socket.receive(take)

    async def settled(self) -> None:
        """Until what was said so far has been told: who hands over and ends at once has said so before."""
        await self._socket.settled()

    def close(self) -> None:
        self._socket.close()

    async def _take(self, child: Child, datagram: Datagram) -> None:
        if datagram.cut:
            self._drop("malformed", f"longer than {MAX_MESSAGE} bytes")
        elif b"\0" in datagram.text:
            self._drop("malformed", "it holds a NUL byte")
        elif (why := await self._refusal(child, datagram.sender)) is not None:
            self._drop("sender", why)
        else:
            for line in in_order(datagram.text):
                await self._hear(child, line)

    async def _hear(self, child: Child, line: str) -> None:
        name, separator, value = line.partition("=")
        try:
            if not separator:
                if line:
                    raise Unreadable("expected NAME=value")
            elif name == "MAINPID":
                await self._hand_over(child, _number(value, 2, 2**31 - 1))
            elif (name, value) == ("READY", "1"):
                self._ready()
            elif (event := event_of(name, value)) is not None:
                self._tell(event)
            else:
                log.debug("%s: notification %s means nothing here", self._unit, quoted(line))
        except Unreadable as error:
            self._drop("malformed", f"{quoted(line)}: {error}")

    async def _refusal(self, child: Child, sender: int) -> str | None:
        """Why this process is not listened to; None if it is."""
        if sender == 0:
            return "its sender is no process of this container"
        if sender == child.main.pid:
            return None
        if self._access is NotifyAccess.MAIN:
            return f"pid {sender} sent it, and NotifyAccess=main: only pid {child.main.pid} is listened to"
        stat = _living(sender)
        if stat is None or sender == child.pid or stat.identity in child.seen:
            return None  # of one that has ended nothing can be told any more: it had the address
        if await self._find(child, sender) is not None or _living(sender) is None:
            return None
        return f"pid {sender} ({stat.name}) sent it, which is none of this unit's processes"

    async def _hand_over(self, child: Child, pid: int) -> None:
        if pid == child.main.pid:
            return
        found = await self._find(child, pid)
        if found is None:
            why = f"pid {pid} is no living process of this unit; pid {child.main.pid} stays its main process"
            self._drop("MAINPID", f"MAINPID={pid}: {why}")
        else:
            self._tell(ev.HandedOver(*found))

    async def _find(self, child: Child, pid: int) -> procfs.Identity | None:
        with trio.move_on_after(LOOK_SEC):
            return await self._processes.find_member(child, self._invocation_id, pid)
        return None

    def _drop(self, key: str, why: str) -> None:
        held_back = self._window.admit(key, trio.current_time())
        if held_back is None:
            return
        more = f" ({held_back} more like it since the last such line)" if held_back else ""
        log.warning("%s: notification dropped: %s%s", self._unit, why, more, extra={"unit": self._unit})


def _living(pid: int) -> procfs.ProcessStat | None:
    stat = procfs.read_stat(pid)
    return stat if stat is not None and stat.alive else None


def event_of(name: str, value: str) -> ev.Event | None:
    """What a notification other than READY and MAINPID means; None: nothing to us. Raise Unreadable."""
    match name, value:
        case "WATCHDOG", "1":
            return ev.KeptAlive()
        case "WATCHDOG", "trigger":
            return ev.WatchdogTriggered()
        case "WATCHDOG_USEC", _:
            microseconds = _number(value, 0, _USEC_INFINITY)
            off = microseconds in (0, _USEC_INFINITY)
            return ev.WatchdogChanged(math.inf if off else microseconds / 1_000_000)
        case "EXTEND_TIMEOUT_USEC", _:
            return ev.TimeoutExtended(_number(value, 0, _USEC_INFINITY) / 1_000_000)
        case "STATUS", _:
            return ev.Progressed(ProgressKind.WORK)
        case "STOPPING", "1":
            return ev.StoppingByItself()
        case "ERRNO", _:
            number = _number(value, 1, _MAX_ERRNO)
            return ev.ErrorReported(f"{errno.errorcode.get(number, number)} ({os.strerror(number)})")
        case "BUSERROR", _:
            return ev.ErrorReported(_printable(value, MAX_ERROR))
        case _:
            return None


def in_order(text: bytes) -> list[str]:
    """The lines, with MAINPID first: who hears that the unit is ready asks which process that is."""
    return sorted(text.decode("utf-8", "replace").split("\n"), key=lambda line: not line.startswith("MAINPID="))


def quoted(line: str) -> str:
    return _printable(line, MAX_QUOTED)


def _printable(text: str, longest: int) -> str:
    return "".join(character if character.isprintable() else "?" for character in text[:longest])


def _number(value: str, least: int, most: int) -> int:
    # Python itself refuses to read thousands of digits, by an error of its own.
    readable = value.isascii() and value.isdecimal() and len(value) <= len(str(most))
    if not readable or not least <= int(value) <= most:
        raise Unreadable(f"expected a whole number from {least} to {most}")
    return int(value)
