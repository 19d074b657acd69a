"""A comparison as people read it."""

from __future__ import annotations

from collections.abc import Iterator

from controller.simulation.outcome import Comparison, Outage, Outcome
from supervisor.shared.words import duration, table

OURS, THEIRS = "podvisor", "containers only"
Row = tuple[str, str, str]


def text(comparison: Comparison) -> str:
    faults = ", ".join(f"{count} x {kind}" for kind, count in comparison.faults.items())
    lines = [
        f"{comparison.scenario}: {comparison.instances} instances of {comparison.pods} pods,"
        f" {duration(comparison.duration_sec)}, seed {comparison.seed}",
        f"faults: {faults or 'none'}",
        "",
        table(("", OURS, THEIRS), list(_rows(comparison))),
    ]
    return "\n".join(lines)


def _rows(comparison: Comparison) -> Iterator[Row]:
    ours, theirs = comparison.podvisor, comparison.containers_only
    yield "availability", f"{ours.availability:.4%}", f"{theirs.availability:.4%}"
    yield "lost", duration(ours.lost_sec), duration(theirs.lost_sec)
    yield from _lost("to", ours.lost_by_cause, theirs.lost_by_cause)
    yield from _lost("in", ours.lost_by_phase, theirs.lost_by_phase)
    yield "outages", str(ours.outages), str(theirs.outages)
    yield "longest", _outage(ours.longest_outage), _outage(theirs.longest_outage)
    yield "out at the end", str(ours.not_serving_at_the_end), str(theirs.not_serving_at_the_end)
    yield from _counts(ours, theirs)
    for outcome in sorted({*ours.runs, *theirs.runs}):
        yield f"runs: {outcome}", str(ours.runs.get(outcome, 0)), str(theirs.runs.get(outcome, 0))


def _counts(ours: Outcome, theirs: Outcome) -> Iterator[Row]:
    yield "engines relaunched", str(ours.restarts.engines_in_place), str(theirs.restarts.engines_in_place)
    yield "containers restarted", str(ours.restarts.containers), str(theirs.restarts.containers)
    yield "pods created anew", str(ours.restarts.pods), str(theirs.restarts.pods)
    yield "KV stores lost", str(ours.kv_stores_lost), str(theirs.kv_stores_lost)
    yield "held for an operator", str(ours.held), str(theirs.held)


def _lost(word: str, ours: dict[str, float], theirs: dict[str, float]) -> Iterator[Row]:
    names = sorted({*ours, *theirs}, key=lambda name: (-theirs.get(name, 0.0), -ours.get(name, 0.0), name))
    for name in names:
        yield f"  {word} {name}", duration(ours.get(name, 0.0)), duration(theirs.get(name, 0.0))


def _outage(outage: Outage | None) -> str:
    return f"{duration(outage.lasted_sec)} ({outage.cause})" if outage is not None else "-"
