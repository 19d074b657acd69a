"""What stands at the end of the demo: claims, pids before and after, steps and durations. Nothing is asked here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from controller.demo.claims import CLAIMS, Check
from controller.demo.log_lines import seconds
from controller.demo.narrator import Tone, milliseconds
from controller.demo.seen import ENGINE, PodSeen, Seen
from supervisor import wire
from supervisor.shared.words import table


def claims(checks: Sequence[Check]) -> Iterator[tuple[str, Tone]]:
    """Every claim with its checks."""
    for number, claim in CLAIMS.items():
        own = [check for check in checks if check.claim == number]
        yield f"  {number}. {claim}", Tone.LOUD
        for check in own:
            mark, tone = ("✓", Tone.GOOD) if check.held else ("✗", Tone.BAD)
            yield f"     {mark} {check.what}: {check.saw}", tone


def pids(seen: Seen) -> str:
    rows = []
    for pod in seen.pods:
        for unit, old in sorted(pod.before.items(), key=lambda item: item[0] == ENGINE):
            new = pod.after.get(unit)
            rows.append((pod.name, unit, str(old or "-"), str(new or "-"), _what_became(seen, pod, unit)))
    return table(("POD", "UNIT", "BEFORE", "AFTER", ""), rows)


def _what_became(seen: Seen, pod: PodSeen, unit: str) -> str:
    if pod.before[unit] == pod.after.get(unit):
        return "the same"
    if unit != ENGINE:
        return "another one"
    fate = "killed" if pod.name == seen.victim else "stopped with its gang"
    return f"{fate}; relaunched" if pod.after.get(unit) else f"{fate}; not back"


def steps(run: wire.RunView) -> str:
    took = [f"{step.name} {_took(step)}" for step in run.steps]
    return f"run {run.id[:8]}, {run.outcome or 'running'}: {', '.join(took) or 'no step'}"


def back_after_sec(seen: Seen) -> float | None:
    """From the kill to ACTIVE."""
    run = seen.run
    if run is None or run.outcome != "done" or not run.steps or run.steps[-1].ended_at is None:
        return None
    return seconds(run.steps[-1].ended_at) - seen.killed_at


def broken(checks: Sequence[Check]) -> str:
    """Which claims did not hold."""
    numbers = sorted({check.claim for check in checks if not check.held})
    return f"claim{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))} did not hold"


def _took(step: wire.RunStepView) -> str:
    if step.ended_at is None:
        return "unfinished"
    return milliseconds(seconds(step.ended_at) - seconds(step.started_at))
