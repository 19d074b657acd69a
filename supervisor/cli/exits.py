"""`podvisor exits`: how the units of this pod have ended, of old."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor import wire
from supervisor.cli.client import Supervisor, json_option, optional_unit_argument, socket_option, unit_path
from supervisor.shared.words import duration, table


@click.command("exits", short_help="Show the last 20 exits of UNIT, or of each unit.")
@optional_unit_argument
@json_option
@socket_option
def command(unit: str | None, as_json: bool, socket_path: Path | None) -> None:
    """Show the last 20 exits of UNIT, or of each unit, newest first.

    \b
    Example: podvisor exits engine
    """
    supervisor = Supervisor(socket_path)
    if unit is not None:
        one = supervisor.get(unit_path(unit, "exits"), wire.ExitsView)
        click.echo(wire.encode(one) if as_json else _table([one]))
        return
    every = supervisor.get("/v1/exits", wire.AllExitsView)
    click.echo(wire.encode(every) if as_json else _table(every.units))


def _evidence(exit_: wire.ExitView) -> str:
    return f" ({len(exit_.diagnosis)} lines of evidence: --json)" if exit_.diagnosis else ""


def _table(units: tuple[wire.ExitsView, ...] | list[wire.ExitsView]) -> str:
    exits = sorted(((exit_.at, view.unit, exit_) for view in units for exit_ in view.exits), key=lambda one: one[:2])
    if not exits:
        return "nothing has ended yet"
    rows = [
        (
            at,
            unit,
            str(exit_.pid or "-"),
            duration(exit_.uptime_sec),
            "-" if exit_.epoch is None else str(exit_.epoch),
            " ".join(exit_.cause.split()) + ("" if exit_.asked else ", not asked for") + _evidence(exit_),
        )
        for at, unit, exit_ in reversed(exits)
    ]
    return table(("AT", "UNIT", "PID", "AFTER", "EPOCH", "CAUSE"), rows)
