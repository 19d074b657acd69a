"""A comparison as a PNG: the time lost, by what it was lost to and by what was waited for."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from controller.simulation.outcome import Comparison, Outcome
from controller.simulation.report import OURS, THEIRS

MINUTE = 60.0


class CannotDraw(Exception):
    """What draws is not installed."""


def draw(comparison: Comparison, path: Path) -> None:
    """Raises CannotDraw, and OSError if the file cannot be written."""
    if find_spec("matplotlib") is None:
        raise CannotDraw("a picture needs matplotlib in podvisor's own environment: pip install matplotlib")
    from matplotlib.figure import Figure

    outcomes = {OURS: comparison.podvisor, THEIRS: comparison.containers_only}
    figure = Figure(figsize=(10, 5), layout="constrained")
    for axes, title, parts in zip(figure.subplots(2, 1), ("by cause", "by phase"), _parts(outcomes), strict=True):
        left = dict.fromkeys(outcomes, 0.0)
        for name, seconds in parts.items():
            minutes = [seconds[who] / MINUTE for who in outcomes]
            axes.barh(list(outcomes), minutes, left=list(left.values()), label=name)
            left = {who: left[who] + value for who, value in zip(outcomes, minutes, strict=True)}
        axes.invert_yaxis()
        axes.set_xlabel("minutes lost, of all instances")
        axes.set_title(title, loc="left", fontsize="medium")
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    said = ", ".join(f"{who} {outcome.availability:.3%}" for who, outcome in outcomes.items())
    figure.suptitle(f"{comparison.scenario}: {said}")
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _parts(outcomes: dict[str, Outcome]) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    causes = sorted({name for outcome in outcomes.values() for name in outcome.lost_by_cause})
    phases = sorted({name for outcome in outcomes.values() for name in outcome.lost_by_phase})
    return (
        {name: {who: outcome.lost_by_cause.get(name, 0.0) for who, outcome in outcomes.items()} for name in causes},
        {name: {who: outcome.lost_by_phase.get(name, 0.0) for who, outcome in outcomes.items()} for name in phases},
    )
