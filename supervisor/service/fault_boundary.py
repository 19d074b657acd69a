"""The line that an error of our own does not cross: it costs the unit in whose handling it came up, and no other.

Drawn around what is done for one unit. The reaper, the sinks, the signals, and the machine of a unit with those who
observe it, have none: without them nothing that is told of any unit holds, and the supervisor ends.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


def fault_of(unit: str, doing: str, errors: BaseExceptionGroup[Exception]) -> str:
    """Log it with its trace; in words for the unit's machine, which decides what follows."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    words = f"internal error ({doing}): {type(first).__name__}: {first}"
    log.error("%s: %s; this is a bug of podvisor", unit, words, exc_info=first, extra={"unit": unit})
    return words
