"""What people read: a line for each strike, and all that helps when an invariant did not hold."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from controller.demo.log_lines import Line, parse
from tests.chaos.faults import Strike, describe
from tests.chaos.play import Played

REPLAY = "strikes.json"
SHOWN_LINES = 120


def line(played: Played) -> str:
    mark = "✗" if played.violations else "✓"
    return f"{mark} {time.strftime('%H:%M:%S')}  {played.strike.number:4}  {played.took_sec:5.1f} s  {played.strike}"


def violation(played: Played, history: Sequence[Strike], seed: int, command: str, directory: Path) -> Iterator[str]:
    """`history` ends with the strike that was not borne; `directory` has the logs."""
    (directory / REPLAY).write_bytes(msgspec.json.format(msgspec.json.encode(history)))
    yield f"strike {played.strike.number} of seed {seed} was not borne:"
    yield from (f"  {one}" for one in played.violations)
    yield "the faults so far:"
    for strike in history:
        yield from (f"  {strike.number:4}  {describe(timed)}" for timed in strike.faults)
    if played.watched.asked:
        yield "what was asked in the last strike:"
        yield from (f"  {asked.what}: {asked.status} {asked.text[:200]}" for asked in played.watched.asked)
    yield "the last lines of the logs:"
    yield from (f"  {text}" for text in timeline(directory, time.time() - played.took_sec)[-SHOWN_LINES:])
    yield f"replay: {command} --seed {seed} --replay {directory / REPLAY}"
    yield f"logs: {directory}/*/logs/life-*.log"


def timeline(directory: Path, since: float) -> list[str]:
    """What podvisor wrote in all pods since then, in one order."""
    found: list[Line] = []
    for log in sorted(directory.glob("*/logs/life-*.log")):
        at = 0.0
        for number, text in enumerate(log.read_text(errors="replace").splitlines()):
            read = parse(log.parent.parent.name, number, text, at)
            at = read.at
            if read.record is not None and read.at >= since:
                found.append(read)
    found.sort(key=lambda read: read.at)
    return [f"{read.at - since:8.3f}  {read.pod:<12} {read.record.message[:180]}" for read in found if read.record]
