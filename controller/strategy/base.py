"""What a recovery strategy is. Strategies import this; nothing here imports a strategy (S19)."""

from __future__ import annotations

from typing import Protocol

from controller.model.outcome import Outcome
from controller.recovery import Recovery


class Strategy(Protocol):
    async def execute(self, recovery: Recovery) -> Outcome:
        """Recover one instance, or say why not.

        Cancelled, because a graver fault came, an operator asked or the controller ends, it cleans up after itself in
        bounded time: that is waited for before anything else is done with the instance.
        """
