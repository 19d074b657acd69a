"""Which signals a command gets, and as what."""

from __future__ import annotations

import signal
from signal import (
    SIGALRM,
    SIGCHLD,
    SIGCONT,
    SIGHUP,
    SIGINT,
    SIGKILL,
    SIGSEGV,
    SIGSTOP,
    SIGTERM,
    SIGTSTP,
    SIGTTIN,
    SIGTTOU,
)

import pytest

from supervisor.command_signals import FAULTS, FORWARDED, SUSPENDING, Order, order_for, parse_rewrites, reception


@pytest.mark.parametrize(
    "received, rewrites, order",
    [
        (SIGTERM, {}, Order(SIGTERM)),
        (SIGCONT, {}, Order(SIGCONT)),
        (SIGSEGV, {}, Order(SIGSEGV)),
        (SIGTSTP, {}, Order(SIGSTOP, suspend=True)),
        (SIGTTIN, {}, Order(SIGSTOP, suspend=True)),
        (SIGTTOU, {}, Order(SIGSTOP, suspend=True)),
        (SIGTERM, {SIGTERM: SIGINT}, Order(SIGINT)),
        (SIGINT, {SIGTERM: SIGINT, SIGINT: SIGTERM}, Order(SIGTERM)),
        (SIGHUP, {SIGHUP: None}, Order(None)),
        (SIGTSTP, {SIGTSTP: SIGHUP}, Order(SIGHUP, suspend=True)),
        (SIGTSTP, {SIGTSTP: SIGTSTP}, Order(SIGTSTP, suspend=True)),
        (SIGTSTP, {SIGTSTP: None}, Order(None, suspend=True)),
        (SIGTERM, {SIGTERM: SIGTSTP}, Order(SIGTSTP)),
    ],
)
def test_orders(received: int, rewrites: dict[int, int | None], order: Order) -> None:
    assert order_for(received, rewrites) == order


def test_every_signal_is_received_in_one_way_and_no_fault_by_a_handler() -> None:
    for ignored in (frozenset[int](), frozenset[int]({SIGHUP, SIGINT}), frozenset[int]({SIGCHLD})):
        received = reception(ignored)
        assert received.handled | received.awaited == FORWARDED
        assert not received.handled & received.awaited
        assert not received.handled & (FAULTS | SUSPENDING | ignored)
    assert not FORWARDED & {SIGKILL, SIGSTOP, SIGCHLD}
    assert {SIGALRM, signal.SIGRTMIN + 5, signal.SIGRTMAX} <= FORWARDED


def test_rewrites_by_name_and_number() -> None:
    written = ["SIGTERM:SIGINT", "hup:usr1", "28:0", "15:2"]
    assert parse_rewrites(written) == {SIGTERM: SIGINT, SIGHUP: signal.SIGUSR1, signal.SIGWINCH: None}
