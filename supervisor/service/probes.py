"""Run a unit's probes while it runs: when which of them is asked, and what their verdicts tell the machine."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from supervisor.unit import probing
from supervisor.unit.events import Event, LivenessFailed, LivenessRecovered, NotReady, Ready
from supervisor.unit.model import Check, LogLineCheck, Probe, Probes
from supervisor.unit.moves import OVERSLEPT_SEC
from supervisor.unit.probing import ProbeKind, Verdict

NOTIFICATION = "notification"

Ask = Callable[[Check], Awaitable[str | None]]
"""Carries out one check: None if it succeeded, else what is wrong. May take as long as it likes."""


class Gates:
    """What must have passed before the unit is ready; says so once, when the last has."""

    def __init__(self, names: frozenset[str], tell: Callable[[Event], None]) -> None:
        self._closed = set(names)
        self._tell = tell

    @property
    def closed(self) -> bool:
        return bool(self._closed)

    def open(self, name: str) -> None:
        if name not in self._closed:
            return
        self._closed.discard(name)
        if not self._closed:
            self._tell(Ready())


class _Overslept(Exception):
    pass


@dataclass(slots=True)
class ProbeRunner:
    """The probes of one invocation. `run` ends only by cancellation; what exec probes started is gone then."""

    probes: Probes
    ask: Ask
    gates: Gates
    tell: Callable[[Event], None]

    async def run(self) -> None:
        passed: set[ProbeKind] = set()
        running: set[ProbeKind] = set()
        async with trio.open_nursery() as nursery:

            def start_those_due() -> None:
                for kind in probing.runnable(self.probes, passed) - running:
                    running.add(kind)
                    nursery.start_soon(self._probe, kind, note_passed)

            def note_passed(kind: ProbeKind) -> None:
                passed.add(kind)
                self.gates.open(kind)
                start_those_due()

            start_those_due()

    async def _probe(self, kind: ProbeKind, note_passed: Callable[[ProbeKind], None]) -> None:
        probe = probing.probe_of(self.probes, kind)
        assert probe is not None  # only declared probes are runnable
        tally, told = probing.first_tally(kind), None
        await trio.sleep(probe.initial_delay_sec)
        while True:
            began = trio.current_time()
            try:
                complaint = await self._ask_in_time(probe)
            except _Overslept:
                continue
            before = tally
            tally, verdict = probing.count(probe, before, complaint is None)
            if tally.passed_once and not before.passed_once:
                note_passed(kind)
                if kind is ProbeKind.STARTUP or isinstance(probe.check, LogLineCheck):
                    return  # passed for good
            elif verdict is not None and tally.passed_once:
                self._report(kind, verdict, complaint or "")
            elif complaint is not None and complaint != told and not tally.passed_once:
                told = complaint
                self.tell(NotReady(f"{kind}: {complaint}"))
            await trio.sleep_until(began + probing.pause_before_next(kind, probe, tally))

    async def _ask_in_time(self, probe: Probe) -> str | None:
        """Raise _Overslept when we were stopped meanwhile: then who was asked is not to blame."""
        # A log line is waited for, not asked for: it may take as long as the start may take.
        timeout = math.inf if isinstance(probe.check, LogLineCheck) else probe.timeout_sec
        deadline, woke = trio.current_time() + timeout, -math.inf
        complaint: str | None = f"no answer within {timeout:g} s"
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                nonlocal woke
                await trio.sleep_until(deadline)
                woke = trio.current_time()
                nursery.cancel_scope.cancel(reason="out of time")

            nursery.start_soon(give_up)
            complaint = await self.ask(probe.check)
            nursery.cancel_scope.cancel(reason="answered")
        if woke - deadline > OVERSLEPT_SEC:
            raise _Overslept
        return complaint

    def _report(self, kind: ProbeKind, verdict: Verdict, complaint: str) -> None:
        match kind, verdict:
            case ProbeKind.READINESS, Verdict.PASSED:
                self.tell(Ready())
            case ProbeKind.READINESS, Verdict.FAILED:
                self.tell(NotReady(complaint))
            case ProbeKind.LIVENESS, Verdict.PASSED:
                self.tell(LivenessRecovered(kind))
            case ProbeKind.LIVENESS, Verdict.FAILED:
                self.tell(LivenessFailed(kind, complaint))
            case ProbeKind.STARTUP, _:
                pass  # until it passes the start's own deadline is what counts
