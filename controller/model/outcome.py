"""What came of a recovery."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recovered:
    message: str


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str
    """In words: which supervisor, and what it said."""


Outcome = Recovered | Failed
"""What a strategy says."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """It was not let come to an end: by a graver fault, or an operator."""

    reason: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """This controller ends: what the recovery was to answer is left to the next."""

    reason: str


Ended = Outcome | Withdrawn | Interrupted
