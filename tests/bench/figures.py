"""What a benchmark hands over: figures with their samples, and which peers could not be asked."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit from the design's budgets. It is shown beside the figure and never asserted."""

    limit: float
    at_least: bool = False

    def is_met_by(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """Samples of one quantity of one program. There is at least one sample."""

    subject: str
    """Which program: `podvisor`, or a peer with its version."""
    name: str
    unit: str
    values: tuple[float, ...]
    goal: Goal | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def p90(self) -> float:
        """The nearest rank: a value that was really seen."""
        return sorted(self.values)[-(-9 * len(self.values) // 10) - 1]

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return "met" if self.goal.is_met_by(self.median) else "missed"


@dataclass(slots=True)
class Sheet:
    """What one benchmark has found so far; kept when it is cut short."""

    figures: list[Figure] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """How it was measured where that matters, and what could not be measured."""

    def add(self, subject: str, name: str, unit: str, values: Sequence[float], goal: Goal | None = None) -> None:
        """Nothing is added when there is no sample; the reader then finds a remark."""
        if values:
            self.figures.append(Figure(subject, name, unit, tuple(values), goal))
        else:
            self.remark(f"{subject}: no sample of: {name}")

    def remark(self, text: str) -> None:
        self.remarks.append(text)
