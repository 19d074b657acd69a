"""`podvisor logs UNIT`: the tail that the supervisor keeps in memory, and what comes after it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import click

from supervisor import wire
from supervisor.cli.client import Supervisor, interrupted_by_hand, json_option, socket_option, units_argument


@click.command("logs")
@units_argument
@click.option(
    "-n", "--lines", type=click.IntRange(0), metavar="N", default=50, show_default=True, help="How many lines of each."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, over restarts too; Ctrl-C ends it.")
@click.option("-I", "--invocation", is_flag=True, help="Only what was written since the last start.")
@json_option
@socket_option
def command(
    units: tuple[str, ...], lines: int, follow: bool, invocation: bool, as_json: bool, socket_path: Path | None
) -> None:
    """Show the last output of the UNITs, of all without one.

    Several are told apart by a prefix. With --json one object a line: time, unit, stream, text, invocation.

    With --json, one object for each line.

    \b
    Example: podvisor logs -f engine kv-store
    """
    query = [("unit", unit) for unit in units] + [("lines", str(lines))]
    query += [("follow", "1")] if follow else []
    query += [("invocation", "current")] if invocation else []
    with interrupted_by_hand(), Supervisor(socket_path).lines(f"/v1/logs?{urlencode(query)}") as stream:
        for line in stream:
            click.echo(line if as_json else _shown(line, of_many=len(units) != 1))


def _shown(line: str, *, of_many: bool) -> str:
    read = wire.decode(wire.LogLine, line.encode())
    return f"[{read.unit}] {read.text}" if of_many and read.unit else read.text
