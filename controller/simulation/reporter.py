"""Tells the controller of a death and repeats it until it is taken, as `supervisor.engine.fault_reporter` does.

What is due, and what the answer does to the freeze, is decided by the supervisor's model.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.reception import Unknown
from controller.simulation.surroundings import Life, Link
from supervisor import wire
from supervisor.engine.model import progress, reports
from supervisor.engine.model.reports import DeathReport, Delivered, Observation

FIRST_RETRY_SEC = 0.5
MAX_RETRY_SEC = 5.0


class Reporter:
    def __init__(
        self,
        life: Life,
        link: Link,
        observation: Callable[[], Observation],
        message: Callable[[DeathReport], wire.SoftwareFaultMsg],
        feed: Callable[[progress.Event], None],
    ) -> None:
        self._life = life
        self._link = link
        self._observation = observation
        self._message = message
        self._feed = feed
        self._delivered = Delivered()
        self._retry_sec = FIRST_RETRY_SEC
        self._waits = False

    def look(self) -> None:
        seen = self._observation()
        self._delivered = reports.observed(self._delivered, seen)
        report = reports.due(self._delivered, seen)
        if report is None:
            self._retry_sec = FIRST_RETRY_SEC
        elif not self._waits and not self._is_taken(report):
            self._waits = True
            self._life.after(self._retry_sec, self._again)
            self._retry_sec = min(2 * self._retry_sec, MAX_RETRY_SEC)

    def _again(self) -> None:
        self._waits = False
        self.look()

    def _is_taken(self, report: DeathReport) -> bool:
        controller = self._link()
        try:
            answer = controller.report(self._message(report)) if controller is not None else None
        except Unknown:
            answer = None
        if answer is None:
            self._feed(progress.ReportUndelivered(report.epoch))
            return False
        if answer.recovery is not wire.Recovery.PENDING:
            self._delivered = reports.delivered(self._delivered, report)
        self._feed(progress.ReportAccepted(report.epoch, answer.recovery, answer.run_id, answer.wait_sec))
        return answer.recovery is not wire.Recovery.PENDING
