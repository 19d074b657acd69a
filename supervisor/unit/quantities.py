"""Durations and sizes, in the notation of systemd.time(7) and systemd.exec(5)."""

from __future__ import annotations

import math
import re

from supervisor.unit.values import Converter, Mismatch

_SECONDS = {
    "us": 1e-6, "usec": 1e-6, "µs": 1e-6,
    "ms": 1e-3, "msec": 1e-3,
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
    "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
}  # fmt: skip
_DURATION_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]*)\s*")

_DURATION_PATTERN = rf"^\s*(infinity|(\d+(\.\d+)?\s*({'|'.join(sorted(_SECONDS, key=len, reverse=True))})?\s*)+)\s*$"

# As in systemd a single letter means powers of 1024; "KB" is spelled out and means what SI says.
_BYTES = {"": 1, "b": 1} | {
    prefix + suffix: base ** (power + 1)
    for power, prefix in enumerate("kmgt")
    for suffix, base in (("", 1024), ("ib", 1024), ("b", 1000))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parse_duration(written: str) -> float:
    """Seconds; `infinity` is `math.inf`. Raise Mismatch."""
    if written.strip() == "infinity":
        return math.inf
    seconds, position = 0.0, 0
    while position < len(written):
        part = _DURATION_PART.match(written, position)
        if part is None:
            raise Mismatch
        if part[2] and part[2] not in _SECONDS:
            raise Mismatch(f"unknown unit of time {part[2]!r}; known are us, ms, s, min, h, d, w")
        seconds += float(part[1]) * _SECONDS.get(part[2], 1.0)
        position = part.end()
    if position == 0:
        raise Mismatch
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest exact spelling, down to a microsecond: `1min 30s`."""
    microseconds = seconds * 1_000_000
    if math.isinf(microseconds):
        return "infinity"
    left, parts = round(microseconds), []
    for unit, size in (("d", 86400_000_000), ("h", 3600_000_000), ("min", 60_000_000), ("s", 1_000_000),
                       ("ms", 1000), ("us", 1)):  # fmt: skip
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"


def duration(minimum: float = 0.0, maximum: float = math.inf) -> Converter[float]:
    """Seconds, from a string with units or a plain number; bounds are inclusive."""

    def read(found: object) -> float:
        if isinstance(found, str):
            seconds = parse_duration(found)
        elif isinstance(found, int | float) and not isinstance(found, bool):
            seconds = float(found)
        else:
            raise Mismatch
        if not minimum <= seconds <= maximum:
            raise Mismatch
        return seconds

    as_text = {"type": "string", "pattern": _DURATION_PATTERN}
    as_number: dict[str, object] = {"type": "number", "minimum": minimum}
    if maximum < math.inf:
        as_number["maximum"] = maximum
    schema = {"anyOf": [as_text, as_number]}
    return Converter(f'a duration such as "1min 30s"{_between(minimum, maximum)}', read, schema)


def _between(minimum: float, maximum: float) -> str:
    if minimum > 0.0 and maximum < math.inf:
        return f" from {format_duration(minimum)} to {format_duration(maximum)}"
    if minimum > 0.0:
        return f" of at least {format_duration(minimum)}"
    return f" of at most {format_duration(maximum)}" if maximum < math.inf else ', "infinity" or seconds'


def parse_size(written: str) -> int:
    """Bytes. Raise Mismatch."""
    match = _SIZE.fullmatch(written.strip().lower())
    if match is None or match[2] not in _BYTES:
        raise Mismatch
    return int(float(match[1]) * _BYTES[match[2]]) if "." in match[1] else int(match[1]) * _BYTES[match[2]]


def size(minimum: int = 0) -> Converter[int]:
    """Bytes, from a string with a unit or a plain number."""

    def read(found: object) -> int:
        if isinstance(found, str):
            count = parse_size(found)
        elif isinstance(found, int) and not isinstance(found, bool):
            count = found
        else:
            raise Mismatch
        if count < minimum:
            raise Mismatch
        return count

    least = f" of at least {minimum} bytes" if minimum else " or a number of bytes"
    as_text = {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([KMGTkmgt]([iI]?[bB])?|[bB])?\s*$"}
    schema = {"anyOf": [as_text, {"type": "integer", "minimum": minimum}]}
    return Converter(f'a size such as "50MB" or "256KiB"{least}', read, schema)
