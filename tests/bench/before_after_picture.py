"""The figures of `before_after` as one picture that can be read without them: the wait, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import before_after
from tests.bench.figures import Figure, Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes  # type: ignore[import-not-found, unused-ignore]

BLUE, GREY, ORANGE, INK, PALE = "#2166ac", "#9aa0a6", "#d9822b", "#222222", "#666666"
COLOURS = {before_after.IN_PLACE: BLUE, before_after.CONTAINERS: GREY}
ROWS = ("podvisor:\nengines relaunched\nin place", "containers\nrestart")
PHASES = {
    before_after.ENDING: (GREY, "the supervisor gives its container up: 5 looks, 3 s apart"),
    before_after.RESTARTING: (ORANGE, "both containers end and run again"),
    before_after.STARTING: (BLUE, "engines are stopped, started, loaded"),
}
COSTS: Mapping[str, str] = {
    before_after.FAILED: "requests failed,\nof 20 a second to both pods in turn",
    before_after.KEPT: "KV-cache entries kept,\nof 20,000 in the pods' Redis",
    before_after.RESTARTED: "containers restarted,\nof two",
}


def draw(sheet: Sheet, path: Path) -> None:
    """Needs matplotlib. Raises KeyError if a figure is missing on the sheet."""
    from matplotlib.figure import Figure as Canvas  # type: ignore[import-not-found, unused-ignore]

    canvas = Canvas(figsize=(10, 5.4), layout="constrained", facecolor="white")
    canvas.suptitle(
        "kill -9 of one engine in an instance of two pods", x=0.01, ha="left", fontsize=15, weight="bold", color=INK
    )
    upper, lower, foot = canvas.subfigures(3, 1, height_ratios=[1.25, 1, 0.16], squeeze=False)[:, 0]
    _time(upper.subplots(), sheet)
    for axes, (name, title) in zip(lower.subplots(1, len(COSTS)), COSTS.items(), strict=True):
        _cost(axes, title, {side: _figure(sheet, side, name) for side in COLOURS})
    kills = len(_figure(sheet, before_after.IN_PLACE, before_after.BACK).values)
    foot.text(
        0.01,
        0.5,
        f"Medians of {kills} kills each, in turns in one run, default settings; whiskers: least and most. llama-server,"
        " whose 0.3 GB load in a quarter of a second, and Redis in both pods.\n"
        "What a larger model takes to load comes on top of both. The stand-in for the kubelet restarts a container that"
        " crashes for the first time at once, as a kubelet does.",
        fontsize=8,
        color=PALE,
        va="center",
    )
    canvas.savefig(path, dpi=150, metadata={"Software": None})


def _time(axes: Axes, sheet: Sheet) -> None:
    """From the kill until all endpoints answer, by what is waited for: in the kill that took the median time."""
    for row, side in enumerate(COLOURS):
        back = _figure(sheet, side, before_after.BACK)
        middle = sorted(back.values)[len(back.values) // 2]
        left = 0.0
        for name, (colour, words) in PHASES.items():
            seconds = _figure(sheet, side, name).values[back.values.index(middle)]
            axes.barh(row, seconds, left=left, color=colour, height=0.6, label=None if row else words)
            left += seconds
        spread = [[middle - min(back.values)], [max(back.values) - middle]]
        axes.errorbar(middle, row, xerr=spread, color=INK, capsize=3, linewidth=1)
        words = f"{middle:.2f} s" if middle < 1 else f"{middle:.1f} s"
        axes.text(max(back.values) + 0.3, row, words, va="center", fontsize=15, weight="bold", color=INK)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, frameon=False, fontsize=9, handlelength=1)
    axes.set_yticks(range(len(ROWS)), ROWS, fontsize=10)
    axes.set_ylim(1.5, -0.5)
    axes.set_title("until all endpoints answer again, seconds", loc="left", fontsize=11, color=INK)
    axes.margins(x=0.09)
    _plain(axes)
    axes.spines["bottom"].set_visible(False)
    axes.locator_params(axis="x", integer=True)
    axes.tick_params(axis="x", labelsize=8, colors=PALE)


def _cost(axes: Axes, title: str, figures: Mapping[str, Figure]) -> None:
    most = max(figure.median for figure in figures.values()) or 1
    for row, (side, figure) in enumerate(figures.items()):
        axes.barh(row, figure.median, color=COLOURS[side], height=0.6)
        axes.text(figure.median + most * 0.03, row, f"{figure.median:,.0f}", va="center", fontsize=12, weight="bold")
    axes.set_yticks(range(len(figures)), ["in place", "containers"], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, most * 1.3)
    axes.set_xticks([])
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    _plain(axes)
    axes.spines["bottom"].set_visible(False)


def _plain(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _figure(sheet: Sheet, subject: str, name: str) -> Figure:
    for figure in sheet.figures:
        if (figure.subject, figure.name) == (subject, name):
            return figure
    raise KeyError(f"no figure of: {subject}: {name}")
