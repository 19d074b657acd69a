"""Users and groups by number."""

from __future__ import annotations

import re

HIGHEST_ID = 2**32 - 2
"""setuid(2), chown(2): the number after it stands for none."""


def id_number(written: str | int) -> int | None:
    """None: it is a name. Raise ValueError for a number that no user and no group can have."""
    if re.fullmatch(r"[+-]?[0-9]+", str(written)) is None:
        return None
    number = int(written)
    if not 0 <= number <= HIGHEST_ID:
        raise ValueError(f"users and groups have numbers from 0 to {HIGHEST_ID}")
    return number
