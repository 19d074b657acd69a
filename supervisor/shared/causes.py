"""What really went wrong, out of the groups in which nurseries hand it on.

Nurseries within nurseries make a group in a group, and Python prints no more than ten of these: in a trace of the whole
the one line that matters is often not there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator


def causes(error: BaseException) -> Iterator[BaseException]:
    """The errors that are no groups, in the order in which they are held; one that is none itself, alone."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for part in error.exceptions:
        yield from causes(part)


def log_causes(log: logging.Logger, message: str, error: BaseException) -> None:
    """A line for each, with the trace to where it was raised; `message` says with %r what it means."""
    for cause in causes(error):
        log.critical(message, cause, exc_info=cause)
