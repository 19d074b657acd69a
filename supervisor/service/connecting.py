"""Why a connection could not be made, for people."""

from __future__ import annotations

import os


def why_not_connected(error: OSError) -> str:
    """trio raises one error for all the addresses that it tried, which tells nothing; the last of its causes does."""
    cause = error.__cause__
    while isinstance(cause, BaseExceptionGroup) and cause.exceptions:
        cause = cause.exceptions[-1]
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()  # its own words name the address once more
    return error.strerror or str(error)
