"""What a recovery strategy is. Strategies import this; nothing here imports a strategy (S19)."""

from __future__ import annotations

from typing import Protocol

from controller.recovery import Recovery


class Strategy(Protocol):
    async def execute(self, recovery: Recovery) -> None:
        """Recover one instance, or let its containers restart; what came of it is in the registry's runs.

        Cancelled, it cleans up after itself in bounded time and leaves every supervisor either serving or
        free to end itself; `recovery` is closed in the registry in either case.
        """
