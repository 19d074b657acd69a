"""Send the canary of one invocation while its engine works for nobody, and tell the machine what its verdicts are.

What silence is and what an answer means is decided in `supervisor.unit.canary`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import trio

from supervisor.process.threads import NoThread, thread_shortage
from supervisor.shared.error_window import ErrorWindow
from supervisor.unit import canary as rules
from supervisor.unit.canary import Answer, Finding, Watch
from supervisor.unit.events import Event, LivenessFailed, LivenessRecovered
from supervisor.unit.model import Canary, HttpCheck
from supervisor.unit.probing import Verdict

log = logging.getLogger(__name__)

METRICS_SEC = 5.0
"""For the counters to be told; an engine that does not even tell them is asked to work."""
MAX_METRICS = 4 * 1024 * 1024
"""So much of them is read: many ranks and histograms make long pages."""
COMPLAIN_AGAIN_SEC = 600.0
"""A request that is wrong is wrong every time."""


class CanaryRunner:
    """The canary of one invocation. `run` begins when the unit has been ready, and ends only by cancellation."""

    def __init__(self, unit: str, canary: Canary, check: HttpCheck, tell: Callable[[Event], None]) -> None:
        self._unit = unit
        self._canary = canary
        self._check = check
        self._tell = tell
        self._errors = ErrorWindow(COMPLAIN_AGAIN_SEC)

    async def run(self) -> None:
        """Cancelled in the middle of a round: it counts for nothing."""
        watch = Watch(trio.current_time(), await self._tokens())
        self._say_by_what(watch)
        while True:
            await trio.sleep_until(watch.looks_again_at(self._canary))
            watch, ranks = rules.looked(self._canary, watch, await self._tokens(), trio.current_time())
            if ranks:
                watch = await self._ask(watch, ranks)

    async def _ask(self, watch: Watch, ranks: Sequence[int]) -> Watch:
        answer = rules.judge_round(await self._round(ranks))
        watch, verdict = rules.answered(self._canary, watch, answer)
        match answer.finding:
            case Finding.WORKS:
                # What the canary itself made the engine count is no work for anybody: begin to watch anew.
                watch, _ = rules.looked(self._canary, watch, await self._tokens(), trio.current_time())
            case Finding.MISCONFIGURED:
                self._complain(answer)
            case Finding.STUCK | Finding.BUSY:
                log.info("%s: canary: %s", self._unit, answer.words, extra={"unit": self._unit})
        match verdict:
            case Verdict.FAILED:
                self._tell(LivenessFailed(rules.NAME, answer.words))
            case Verdict.PASSED:
                self._tell(LivenessRecovered(rules.NAME))
            case None:
                pass
        return watch

    async def _round(self, ranks: Sequence[int]) -> list[Answer]:
        answers: list[Answer] = []

        async def ask(rank: int) -> None:
            answer = await self._answer(rules.question(self._canary, self._check, rank))
            answers.append(rules.of_rank(self._canary, answer, rank))

        async with trio.open_nursery() as nursery:
            for rank in ranks:
                nursery.start_soon(ask, rank)
        return answers

    async def _answer(self, check: HttpCheck) -> Answer:
        # Imported here because h11 costs the loop 7 ms, which the first spawn need not wait for.
        from supervisor.service import http_check

        with trio.move_on_after(self._canary.timeout_sec):
            try:
                with thread_shortage():
                    answer = await http_check.fetch(check)
            except http_check.NoAnswer as error:
                return Answer(Finding.STUCK, str(error))
            except (NoThread, ValueError) as error:
                return Answer(Finding.MISCONFIGURED, str(error))  # it is not the engine that is to blame
            return rules.judge_answer(answer.status, http_check.complaint(check, answer))
        return Answer(Finding.STUCK, f"no answer within {self._canary.timeout_sec:g} s")

    async def _tokens(self) -> rules.Counters | None:
        from supervisor.service import http_check

        with trio.move_on_after(METRICS_SEC):
            try:
                with thread_shortage():
                    answer = await http_check.fetch(rules.metrics_of(self._check), max_body=MAX_METRICS)
            except (http_check.NoAnswer, NoThread, ValueError):
                return None
            return rules.tokens(answer.body) if answer.status == 200 else None
        return None

    def _say_by_what(self, watch: Watch) -> None:
        if watch.counted is None:
            log.warning(
                "%s: no token counters at %s: the canary is sent every %g s, whether the engine works or not",
                self._unit,
                rules.metrics_of(self._check).url,
                self._canary.idle_sec,
                extra={"unit": self._unit},
            )

    def _complain(self, answer: Answer) -> None:
        held_back = self._errors.admit(answer.words, trio.current_time())
        if held_back is not None:
            log.warning(
                "%s: the canary is answered with %s: it tells nothing of the engine, and counts for nothing; "
                "correct its request ([Canary] Http)",
                self._unit,
                answer.words,
                extra={"unit": self._unit, "held_back": held_back},
            )


def runner_of(unit: str, canary: Canary | None, tell: Callable[[Event], None]) -> Callable[[], Awaitable[None]] | None:
    """None: there is nothing to send."""
    if canary is None or not canary.enabled or canary.check is None:
        return None
    return CanaryRunner(unit, canary, canary.check, tell).run
