"""Reads what containers write, as it comes, and puts the lines of all of them into one order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controller.demo.log_lines import Line, parse

KEPT_LINES = 100_000
CHUNK = 1 << 20


@dataclass
class _Reading:
    """How far one file has been read."""

    offset: int = 0
    unfinished: bytes = b""


@dataclass
class _Writer:
    """One pod: its containers' files, in the order of their lives."""

    logs: Callable[[], Sequence[Path]]
    files: dict[Path, _Reading] = field(default_factory=dict)
    lines: int = 0
    last_at: float = 0.0


class LogBook:
    """The newest KEPT_LINES lines of all pods. One reader; it blocks for a look at each file only."""

    def __init__(self, pods: Mapping[str, Callable[[], Sequence[Path]]]) -> None:
        self._writers = {name: _Writer(logs) for name, logs in pods.items()}
        self._lines: deque[Line] = deque(maxlen=KEPT_LINES)
        self._held_back: list[Line] = []

    def read(self, before: float) -> list[Line]:
        """What is new and older than `before`, in order of time.

        What is younger is held back until the next call, because a line of another pod may still have to go
        in front of it.
        """
        for name, writer in self._writers.items():
            new = self._new_lines(name, writer)
            self._lines += new
            self._held_back += new
        self._held_back.sort(key=lambda line: line.at)  # stable: the lines of one pod keep their order
        ready = [line for line in self._held_back if line.at < before]
        self._held_back = self._held_back[len(ready) :]
        return ready

    def of(self, pod: str) -> tuple[Line, ...]:
        """All lines of a pod that have been read."""
        return tuple(line for line in self._lines if line.pod == pod)

    def _new_lines(self, name: str, writer: _Writer) -> list[Line]:
        found = []
        for path in writer.logs():
            for text in _complete_lines(path, writer.files.setdefault(path, _Reading())):
                line = parse(name, writer.lines, text, writer.last_at)
                writer.lines += 1
                writer.last_at = max(writer.last_at, line.at)
                found.append(line)
        return found


def _complete_lines(path: Path, reading: _Reading) -> list[str]:
    with path.open("rb") as log:
        log.seek(reading.offset)
        data = log.read(CHUNK)
    reading.offset += len(data)
    *complete, reading.unfinished = (reading.unfinished + data).split(b"\n")
    return [line.decode(errors="replace") for line in complete]
