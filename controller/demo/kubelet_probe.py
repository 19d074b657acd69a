"""The kubelet stand-in's HTTP probes: thresholds as a pure fold, and the prober that asks."""

from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx
import trio


@dataclass(frozen=True)
class HttpProbe:
    """Named and defaulted as in a Kubernetes manifest; 200 to 399 passes."""

    port: int
    path: str
    period_sec: float = 10.0
    timeout_sec: float = 1.0
    failure_threshold: int = 3
    success_threshold: int = 1
    initial_delay_sec: float = 0.0
    scheme: str = "http"


@dataclass(frozen=True)
class Streak:
    """Equal answers in a row, and the verdict they led to so far (None: no threshold was reached yet)."""

    verdict: bool | None = None
    answer: bool | None = None
    length: int = 0


def observe(probe: HttpProbe, streak: Streak, answer: bool) -> Streak:
    """Fold one answer in. The verdict turns when the streak reaches the threshold for its side."""
    length = streak.length + 1 if answer == streak.answer else 1
    threshold = probe.success_threshold if answer else probe.failure_threshold
    return Streak(answer if length >= threshold else streak.verdict, answer, length)


class Prober:
    """Asks one probe of one address. Use it as an async context."""

    def __init__(self, probe: HttpProbe, address: str) -> None:
        self._probe = probe
        self._url = f"{probe.scheme}://{address}:{probe.port}{probe.path}"
        self._streak = Streak()
        self._next_at = trio.current_time() + probe.initial_delay_sec
        # As a kubelet does: a connection of its own for each question.
        self._client = httpx.AsyncClient(verify=False, headers={"Connection": "close"})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def next_verdict(self) -> bool:
        """Ask every period until the verdict is another one than before."""
        before = self._streak.verdict
        while True:
            await trio.sleep_until(self._next_at)
            self._next_at = trio.current_time() + self._probe.period_sec
            self._streak = observe(self._probe, self._streak, await self._ask())
            verdict = self._streak.verdict
            if verdict is not None and verdict != before:
                return verdict

    async def _ask(self) -> bool:
        with trio.move_on_after(self._probe.timeout_sec):
            try:
                answer = await self._client.get(self._url, timeout=self._probe.timeout_sec)
            except httpx.HTTPError:
                return False
            return 200 <= answer.status_code < 400
        return False
