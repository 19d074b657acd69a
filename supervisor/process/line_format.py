"""How a line of a unit looks on the container's stdout; no state but the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

Field = str | int | float | None
LineFormat = Callable[[bytes], bytes]
"""From a line without its end to what is written, end included."""


def prefixed(unit: str, fields: Mapping[str, Field]) -> LineFormat:
    """`[unit epoch=3 rank=0] line`."""
    words = [unit, *(f"{name}={value}" for name, value in fields.items())]
    prefix = f"[{' '.join(words)}] ".encode()
    return lambda line: b"%b%b\n" % (prefix, line)


def json_object(unit: str, stream: str, fields: Mapping[str, Field]) -> LineFormat:
    """`{"time": …, "unit": …, "stream": …, "message": …, …fields}`; bytes that are no UTF-8 are written as `\\xNN`."""
    encode = msgspec.json.Encoder().encode
    middle = encode({"unit": unit, "stream": stream})[1:-1]
    end = b"," + encode(fields)[1:] if fields else b"}"

    def line_format(line: bytes) -> bytes:
        written = _rfc3339(time.time_ns() // 1_000_000)
        message = encode(line.decode("utf-8", "backslashreplace"))
        return b'{"time":"%b",%b,"message":%b%b\n' % (written, middle, message, end)

    return line_format


@lru_cache(maxsize=1)  # hundreds of lines share a millisecond
def _rfc3339(milliseconds: int) -> bytes:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


def whole(line: bytes) -> bytes:
    """As it is."""
    return b"%b\n" % line


def bare(line: bytes) -> bytes:
    """As it is; on a line of its own wherever the output before it stopped."""
    return b"\n%b\n" % line
