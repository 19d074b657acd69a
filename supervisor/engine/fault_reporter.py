"""Tells the controller that an engine died, at once, and repeats it until it is taken (seed S12, S25).

What is due is decided in `model/reports.py`; what an accepted report does to the freeze in `model/progress.py`.
It needs no fault-tolerance configuration and no cooperation of the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import trio

from supervisor import wire
from supervisor.engine.controller_client import ControllerClient
from supervisor.engine.controller_errors import ControllerError
from supervisor.engine.model import progress, reports
from supervisor.engine.model.reports import DeathReport, Delivered, Observation
from supervisor.engine.operator import Operator
from supervisor.service.changes import Changes
from supervisor.shared.error_window import ErrorWindow

log = logging.getLogger(__name__)

FIRST_RETRY_SEC = 0.5
MAX_RETRY_SEC = 5.0


class Watched(Protocol):
    """The pod's endpoints as they are seen now."""

    def observations(self) -> Sequence[Observation]: ...

    def fault_message(self, report: DeathReport) -> wire.SoftwareFaultMsg: ...


class FaultReporter:
    def __init__(self, client: ControllerClient, operator: Operator, watched: Watched, changed: Changes) -> None:
        self._client = client
        self._operator = operator
        self._watched = watched
        self._changed = changed
        self._delivered = Delivered()
        self._tried: DeathReport | None = None
        self._attempted = Changes()
        self._errors = ErrorWindow()

    async def run(self) -> None:
        """Until cancelled. A report in flight then may or may not have been taken; reports may be repeated."""
        retry_sec = FIRST_RETRY_SEC
        while True:
            changed = self._changed.next()
            report = self._due()
            if report is None:
                retry_sec = FIRST_RETRY_SEC
                await changed.wait()
                continue
            is_delivered = await self._deliver(report)
            self._tried = report
            self._attempted.announce()
            if not is_delivered:
                await trio.sleep(retry_sec)
                retry_sec = min(2 * retry_sec, MAX_RETRY_SEC)

    async def first_attempt(self) -> None:
        """Until the report that is due now, if any, was sent once: it says more than a heartbeat, so it goes first."""
        await self._attempted.wait_until(self._due, lambda report: report is None or report == self._tried)

    def _due(self) -> DeathReport | None:
        for seen in self._watched.observations():
            self._delivered = reports.observed(self._delivered, seen)
            report = reports.due(self._delivered, seen)
            if report is not None:
                return report
        return None

    async def _deliver(self, report: DeathReport) -> bool:
        """Whether it need not be sent again. A recovery that is pending is asked for again."""
        try:
            answer = await self._client.report(self._watched.fault_message(report))
        except ControllerError as error:
            self._not_taken(report, error)
            self._operator.feed(progress.ReportUndelivered(report.epoch))
            return False
        log.info(
            "death report taken: recovery %s",
            answer.recovery,
            extra={"epoch": report.epoch, "pid": report.pid, "run_id": answer.run_id, "cause": report.message},
        )
        self._operator.feed(progress.ReportAccepted(report.epoch, answer.recovery, answer.run_id, answer.wait_sec))
        if answer.recovery is wire.Recovery.PENDING:
            return False
        self._delivered = reports.delivered(self._delivered, report)
        return True

    def _not_taken(self, report: DeathReport, error: Exception) -> None:
        held_back = self._errors.admit(report.exception_type, trio.current_time())
        if held_back is not None:
            log.error(
                "death report not taken: %s; not frozen, the arbiter goes on counting; retrying",
                error,
                extra={"epoch": report.epoch, "pid": report.pid, "held_back": held_back},
            )
