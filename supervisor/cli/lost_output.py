"""What becomes of a command whose output cannot be written: no trace, since nothing of ours is wrong."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from supervisor.shared.causes import causes

EXIT_LOST = 1
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_LOST = _FULL | {errno.EPIPE}


@contextmanager
def ends_when_output_is_lost() -> Iterator[None]:
    """Inside, exit 1 when the reader has gone, as `head` does, and with one line when a device is full."""
    try:
        yield
    except (OSError, BaseExceptionGroup) as error:
        lost = [cause for cause in causes(error) if isinstance(cause, OSError) and cause.errno in _LOST]
        if len(lost) < len([*causes(error)]):
            raise
        with suppress(OSError):
            for full in [each for each in lost if each.errno in _FULL][:1]:
                where = full.filename or "the output"
                print(f"podvisor: cannot write {where}: {full.strerror}", file=sys.stderr, flush=True)
        _throw_away_the_rest()
        sys.exit(EXIT_LOST)


def _throw_away_the_rest() -> None:
    """The interpreter flushes at its end, and would complain once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
