"""Lines of containers' logs as values: podvisor's own JSON lines, and what units and banners write between them.

Reading files is `log_book`'s, saying what a line means is `narrator`'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

import msgspec

ENGINE_BANNER = re.compile(r"\[ENGINE RELAUNCH #(?P<number>\d+)\] (?P<when>\S+) epoch=(?P<epoch>\d+)")


class Record(msgspec.Struct, frozen=True):
    """One JSON line, by either program; the fields that anybody here looks at."""

    time: str
    logger: str
    message: str
    level: str = "INFO"
    kind: str | None = None
    step: str | None = None
    epoch: int | None = None
    run_id: str | None = None
    lasted_sec: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """`at` is the wall clock's, of all pods the same machine's; a line that has none gets that of the line before.

    `number` orders the lines of one pod. `record` is None for what is no log line of podvisor's.
    """

    pod: str
    number: int
    at: float
    text: str
    record: Record | None = None


def parse(pod: str, number: int, text: str, previous_at: float) -> Line:
    if text.startswith("{"):
        try:
            record = msgspec.json.decode(text, type=Record)
            return Line(pod, number, seconds(record.time), text, record)
        except (msgspec.DecodeError, ValueError):
            pass  # a unit may print braces, too
    banner = ENGINE_BANNER.match(text)
    return Line(pod, number, seconds(banner["when"]) if banner else previous_at, text)


def seconds(timestamp: str) -> float:
    """RFC 3339 to seconds since 1970. Raises ValueError."""
    return datetime.fromisoformat(timestamp).timestamp()
