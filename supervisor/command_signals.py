"""Which signals `podvisor run -- COMMAND` passes on, and as what. Decides; sending is `command_mode.py`'s.

dumb-init's rules: what can be caught goes to the command's whole process group; what would suspend a job suspends
the command and us, so that a shell's job control sees one job.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from supervisor.unit.process_values import signal_name
from supervisor.unit.values import Mismatch

DROP = "0"
"""As dumb-init writes a signal that is not passed on."""

FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS})
"""Sent they are messages like others; raised by a fault of ours they must end us, so no handler may hold them up."""
SUSPENDING = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
FORWARDED = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}


class Order(msgspec.Struct, frozen=True):
    """What to do about one signal."""

    send: int | None
    """To the command's process group; None: nothing."""
    suspend: bool = False
    """Then stop ourselves, until somebody sends SIGCONT."""


def order_for(number: int, rewrites: Mapping[int, int | None]) -> Order:
    """In a session of its own the command's group is orphaned (setpgid(2)): there SIGTSTP and its like do nothing."""
    suspend = number in SUSPENDING
    if number in rewrites:
        return Order(rewrites[number], suspend)
    return Order(signal.SIGSTOP if suspend else number, suspend)


class Reception(msgspec.Struct, frozen=True):
    """How each signal is received, so that the command inherits of signals what we inherited (as from nohup)."""

    handled: AbstractSet[int]
    """By a handler, which exec turns into the default action."""
    awaited: AbstractSet[int]
    """Blocked and waited for. A blocked signal waits even if it is ignored, and blocking does not stop a fault."""


def reception(ignored: AbstractSet[int]) -> Reception:
    awaited = FORWARDED & (FAULTS | SUSPENDING | ignored)
    return Reception(FORWARDED - awaited, awaited)


def parse_rewrites(written: Iterable[str]) -> dict[int, int | None]:
    """`SIGTERM:SIGINT`, numbers as well; `SIGWINCH:0` drops. Raise ValueError with a sentence."""
    rewrites: dict[int, int | None] = {}
    for item in written:
        received, colon, sent = item.partition(":")
        try:
            if not colon:
                raise Mismatch
            rewrites[_number(received)] = None if sent == DROP else _number(sent)
        except Mismatch:
            raise ValueError(
                f"found {item!r}, expected two signals such as SIGTERM:SIGINT, or SIGWINCH:{DROP} to drop one"
            ) from None
    return rewrites


def _number(written: str) -> int:
    return signal.Signals[signal_name.read(written)]
