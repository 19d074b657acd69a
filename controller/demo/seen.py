"""What was seen of a relaunch, as values: all that the claims are judged by, and nothing that judges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from controller.demo.log_lines import Line
from supervisor import wire

ENGINE = "engine"
SUPERVISOR = "supervisor"


@dataclass(frozen=True, slots=True)
class Answer:
    """To a completion request; `status` None: no answer at all, and the text says why."""

    status: int | None
    text: str

    @property
    def is_good(self) -> bool:
        return self.status == 200 and bool(self.text)

    def __str__(self) -> str:
        return repr(self.text) if self.is_good else f"{self.status or 'no answer'} {self.text}"


@dataclass(frozen=True, slots=True)
class PodSeen:
    name: str
    before: Mapping[str, int | None]
    """Pids by unit name, and the supervisor's, as the pod numbers them."""
    after: Mapping[str, int | None]
    restarts: int
    """Of the container."""
    port: int
    """The engine's."""
    port_holders: tuple[int, ...]
    """Pids that have a socket on it after the relaunch, as the pod numbers them."""
    lines: tuple[Line, ...]
    """Everything that its containers wrote."""
    answer_before: Answer | None = None
    """None: its engine serves no HTTP, as the silent half of a pair."""
    answer_after: Answer | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    victim: str
    """The pod whose engine was killed."""
    killed_at: float
    """Wall clock."""
    epoch_before: int
    pods: tuple[PodSeen, ...]
    runs: tuple[wire.RunView, ...]
    """Of later epochs, oldest first."""
    instance: wire.InstanceView | None
    old_processes_before: int
    """Of the engines, before the kill: if there were none, nobody could have seen that one is left."""
    old_processes_after: tuple[str, ...]

    @property
    def run(self) -> wire.RunView | None:
        return self.runs[0] if self.runs else None

    @property
    def epoch(self) -> int:
        """The one that must follow."""
        return self.epoch_before + 1

    def pod(self, name: str) -> PodSeen:
        return next(pod for pod in self.pods if pod.name == name)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A log line that says what was looked for; `what` is the pattern's first group."""

    line: Line
    what: str

    def after(self, moment: float) -> str:
        return f"{self.line.at - moment:+.3f} s"


def sighting(pod: PodSeen, logger: str, pattern: str, *, epoch: int | None = None) -> Sighting | None:
    """The first such line of podvisor in that pod, of that epoch if one is named."""
    for line in pod.lines:
        record = line.record
        if record is None or record.logger != logger or epoch not in (None, record.epoch):
            continue
        match = re.match(pattern, record.message)
        if match is not None:
            return Sighting(line, match[1] if match.re.groups else "")
    return None
