"""What a recovery strategy is. Strategies import this; nothing here imports a strategy (S19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from controller.recovery import Recovery


@dataclass(frozen=True, slots=True)
class Recovered:
    message: str


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str


Outcome = Recovered | Failed


class Strategy(Protocol):
    name: str

    async def execute(self, recovery: Recovery) -> Outcome:
        """Recover one instance.

        Cancelled, it cleans up after itself in bounded time and leaves every supervisor either serving or
        free to end itself; `recovery` is closed in the registry in either case.
        """
