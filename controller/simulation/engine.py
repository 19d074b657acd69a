"""One modelled engine process tree."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class Engine:
    pid: int
    epoch: int
    spawned_at: float
    lives: bool = True
    ready: bool = False
    """Its handshake has happened."""
    hangs: bool = False
    stops: bool = False
    """It was told to."""
    unhealthy: str | None = None
    """Which probe has found it sick."""

    @property
    def serves(self) -> bool:
        return self.ready and self.lives and not (self.hangs or self.stops)
