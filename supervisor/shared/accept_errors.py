"""What trio says when a listener cannot accept, in one line a window instead of a trace ten times a second.

That happens when descriptors run out: trio tries again for ever, and what connects waits meanwhile.
"""

from __future__ import annotations

import logging
import time

from supervisor.shared.error_window import ErrorWindow

LOGGER = "trio.serve_listeners"


class AcceptErrors(logging.Filter):
    """For the logger of that name."""

    def __init__(self) -> None:
        super().__init__()
        self._errors = ErrorWindow()

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, OSError):
            return True
        held_back = self._errors.admit(str(error.errno), time.monotonic())
        if held_back is None:
            return False
        record.msg = "no connection can be accepted: %s; it is tried again, a higher limit of open files would help"
        record.args = (error.strerror,)
        record.exc_info = None
        record.held_back = held_back
        return True
