"""Located errors of unit files and settings: what was found, where, what is expected, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One mistake in a file that people write."""

    path: Path
    line: int | None
    key: str
    """`Service.TimeoutStopSec`, or the file's section, or ``."""
    message: str

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line is not None else str(self.path)
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


class ConfigurationError(Exception):
    """All problems of all files at once; `podvisor` prints them and exits 78 (EX_CONFIG)."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
