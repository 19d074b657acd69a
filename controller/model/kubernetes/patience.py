"""How long the API is left alone after it did not answer, or asked to be."""

from __future__ import annotations

FIRST_SEC = 0.5
LONGEST_SEC = 30.0


def pause(failures: int, asked_sec: float | None, chance: float) -> float:
    """Seconds after so many failures in a row, the first is 1; `chance` from 0 to 1 keeps controllers apart.

    Never less than the API has asked for by Retry-After, but that at most LONGEST_SEC.
    """
    doubled = min(LONGEST_SEC, FIRST_SEC * 2.0 ** min(failures - 1, 16))
    jittered = doubled * (0.5 + chance / 2)
    return max(jittered, min(asked_sec or 0.0, LONGEST_SEC))
