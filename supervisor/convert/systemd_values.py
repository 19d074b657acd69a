"""Plain values of systemd: yes and no, whole numbers, times (systemd.time(7)). Each may raise Unconvertible."""

from __future__ import annotations

import re

from supervisor.convert.remarks import Unconvertible
from supervisor.unit.quantities import format_duration, parse_duration
from supervisor.unit.values import Mismatch

_TRUE, _FALSE = ("1", "yes", "y", "true", "t", "on"), ("0", "no", "n", "false", "f", "off")
_MONTH, _YEAR = 2629800.0, 31557600.0
_LONGER = {"month": _MONTH, "months": _MONTH, "M": _MONTH, "year": _YEAR, "years": _YEAR, "y": _YEAR}
"""As systemd counts them; our own durations end at weeks."""


def boolean(value: str) -> bool:
    if value.lower() not in (*_TRUE, *_FALSE):
        raise Unconvertible(f"found {value!r}, expected yes or no")
    return value.lower() in _TRUE


def whole(value: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]+", value) is None:
        raise Unconvertible(f"found {value!r}, expected a whole number")
    return int(value)


def seconds(value: str) -> float:
    """Raise Unconvertible."""
    total = 0.0

    def longer(found: re.Match[str]) -> str:
        nonlocal total
        total += float(found[1]) * _LONGER[found[2]]
        return " "

    one_micro = value.replace("\u03bc", "\u00b5")  # the Greek letter is the same to systemd
    rest = re.sub(r"(\d+(?:\.\d+)?)\s*(months?|years?|M|y)\b", longer, one_micro).strip()
    try:
        return total + (parse_duration(rest) if rest else 0.0)
    except Mismatch as mismatch:
        raise Unconvertible(f"found {value!r}, expected a time such as 1min 30s {mismatch}".strip()) from None


def duration(value: str) -> str:
    return format_duration(seconds(value))
