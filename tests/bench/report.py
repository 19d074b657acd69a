"""Figures for people (a table), for tools (JSON) and for the eye (PNG, where matplotlib is installed)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.bench.figures import Figure, Sheet
from tests.bench.noise import Quietness

TOO_FAR_APART = 10
"""Beyond it the shortest bars cannot be seen on a linear scale."""
COLUMNS = ("", "n", "median", "p90", "min", "max", "goal", "")


@dataclass(frozen=True, slots=True)
class Result:
    """One benchmark's outcome, with the machine's noise around it."""

    name: str
    about: str
    sheet: Sheet
    before: Quietness
    after: Quietness
    busy: float
    """The part of all cores' time that was used meanwhile, the benchmark included."""
    took_sec: float
    failure: str | None
    """Why it ended early."""


def table(result: Result) -> str:
    """Of one benchmark, as lines."""
    rows = [COLUMNS, *(_row(figure) for figure in result.sheet.figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [f"{result.name}: {result.about}"]
    lines += [f"  {_line(row, widths)}" for row in rows]
    lines += [f"  · {remark}" for remark in result.sheet.remarks]
    lines += [
        f"  noise before: {result.before}",
        f"  noise after:  {result.after}; cores {result.busy:.0%} busy over {result.took_sec:.0f} s",
    ]
    if result.failure is not None:
        lines.append(f"  ENDED EARLY: {result.failure}")
    return "\n".join(lines)


def as_json(results: Sequence[Result], machine: dict[str, object]) -> str:
    benchmarks = [
        {
            "name": result.name,
            "about": result.about,
            "figures": [_plain(figure) for figure in result.sheet.figures],
            "remarks": result.sheet.remarks,
            "noise": {"before": asdict(result.before), "after": asdict(result.after), "busy": result.busy},
            "took_sec": result.took_sec,
            "failure": result.failure,
        }
        for result in results
    ]
    return json.dumps({"machine": machine, "benchmarks": benchmarks}, indent=1, ensure_ascii=False) + "\n"


def draw(results: Sequence[Result], path: Path) -> bool:
    """The figures that have a goal, beside those of peers: median, with min and max as whiskers.

    False without matplotlib, or without a goal.
    """
    if find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure as Canvas  # type: ignore[import-not-found, unused-ignore]

    groups = list(_groups(results))
    if not groups:
        return False
    height = 0.8 + sum(0.7 + 0.35 * len(figures) for _, _, figures in groups)
    canvas = Canvas(figsize=(10, height), layout="constrained")
    plots = canvas.subplots(len(groups), 1, squeeze=False, height_ratios=[2 + len(group[2]) for group in groups])
    for plot, (title, unit, figures) in zip(plots[:, 0], groups, strict=True):
        medians = [figure.median for figure in figures]
        spread = [
            [figure.median - min(figure.values) for figure in figures],
            [max(figure.values) - figure.median for figure in figures],
        ]
        colours = ["tab:blue" if figure.subject.startswith("podvisor") else "tab:gray" for figure in figures]
        plot.barh([figure.subject for figure in figures], medians, xerr=spread, color=colours, capsize=3)
        plot.invert_yaxis()
        if 0 < TOO_FAR_APART * min(medians) < max(medians):
            plot.set_xscale("log")
        plot.set_xlabel(unit)
        plot.set_title(title, loc="left", fontsize="medium")
        for figure in figures:
            if figure.goal is not None:
                plot.axvline(figure.goal.limit, color="tab:red", linestyle="--", linewidth=1)
    canvas.savefig(path, dpi=120)
    return True


def _groups(results: Sequence[Result]) -> Iterator[tuple[str, str, list[Figure]]]:
    """Figures of one quantity belong into one plot."""
    for result in results:
        names = dict.fromkeys((figure.name, figure.unit) for figure in result.sheet.figures)
        for name, unit in names:
            figures = [figure for figure in result.sheet.figures if (figure.name, figure.unit) == (name, unit)]
            if any(figure.goal is not None for figure in figures):
                yield f"{result.name}: {name}", unit, figures


def _row(figure: Figure) -> tuple[str, ...]:
    numbers = (figure.median, figure.p90, min(figure.values), max(figure.values))
    goal = "" if figure.goal is None else f"{figure.goal} {figure.unit}"
    texts = (_number(number, figure.unit) for number in numbers)
    return (f"{figure.subject}: {figure.name}", str(len(figure.values)), *texts, goal, figure.verdict)


def _number(value: float, unit: str) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
    return "  ".join(cells).rstrip()


def _plain(figure: Figure) -> dict[str, object]:
    return {
        "subject": figure.subject,
        "name": figure.name,
        "unit": figure.unit,
        "n": len(figure.values),
        "median": figure.median,
        "p90": figure.p90,
        "min": min(figure.values),
        "max": max(figure.values),
        "goal": None if figure.goal is None else asdict(figure.goal),
        "verdict": figure.verdict or None,
        "values": list(figure.values),
    }
