"""What came of the requests to the API: counted, and told in one line each time that it is news."""

from __future__ import annotations

import logging
from collections import Counter
from enum import StrEnum

import trio

from supervisor.shared.error_window import ErrorWindow

WINDOW_SEC = 300.0

log = logging.getLogger("controller.kubernetes")


class What(StrEnum):
    """A label of metrics."""

    EVENTS = "events"
    CONDITIONS = "conditions"
    DELETIONS = "deletions"
    PODS = "pods"
    """Lists and watches."""


AFTER_REFUSAL = {
    What.EVENTS: "that Event is not written",
    What.CONDITIONS: "that condition is not written before it changes again",
    What.DELETIONS: "it is asked for again in a minute if it is still wanted",
    What.PODS: "they are listed anew after a pause; until then nothing is known of new pods",
}
"""What comes next."""


class Result(StrEnum):
    OK = "ok"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


class Trouble:
    """The counters of one leadership."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[What, Result]] = Counter()
        self.dropped: Counter[What] = Counter()
        """Never written, because the API was away for too long or said no."""
        self.deleted = 0
        """Pods."""
        self._window = ErrorWindow(WINDOW_SEC)

    def went_well(self, what: What) -> None:
        self.requests[what, Result.OK] += 1
        self._window.clear(f"{what} {Result.UNAVAILABLE}")

    def refused(self, what: What, error: Exception) -> None:
        self.requests[what, Result.REFUSED] += 1
        self._tell(what, Result.REFUSED, error, f"{AFTER_REFUSAL[what]}; has the service account its role?")

    def unavailable(self, what: What, error: Exception) -> None:
        self.requests[what, Result.UNAVAILABLE] += 1
        self._tell(what, Result.UNAVAILABLE, error, "it is tried again; relaunches do not wait for it")

    def drop(self, what: What) -> None:
        self.dropped[what] += 1

    def _tell(self, what: What, result: Result, error: Exception, next_step: str) -> None:
        held_back = self._window.admit(f"{what} {result}", trio.current_time())
        if held_back is not None:
            log.warning("%s: %s; %s", what, error, next_step, extra={"held_back": held_back})
