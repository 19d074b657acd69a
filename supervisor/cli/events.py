"""`podvisor events`: what has happened in this pod, and what happens."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor import wire
from supervisor.cli.client import Supervisor, interrupted_by_hand, json_option, socket_option

_COLOURS = {"warning": "yellow", "error": "red"}


@click.command("events", short_help="Show what has happened in this pod.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes; Ctrl-C ends it.")
@click.option("--since", type=click.IntRange(0), metavar="ID", default=0, help="Only those after this one.")
@json_option
@socket_option
def command(follow: bool, since: int, as_json: bool, socket_path: Path | None) -> None:
    """Show what has happened in this pod: units, exits, relaunches, freezes, the arbiter, the controller.

    With --json one object a line, the steps that are logged at debug among them. A line of kind `gap` stands where
    events are no longer kept.

    \b
    Example: podvisor events -f
    """
    path = f"/v1/events?since={since}" + ("" if follow else "&follow=0")
    with interrupted_by_hand(), Supervisor(socket_path).lines(path) as stream:
        for line in stream:
            if not line:
                continue  # only a sign of life
            if as_json:
                click.echo(line)
                continue
            event = wire.decode(wire.SupervisorEvent, line.encode())
            if event.level != "debug":
                click.echo(_shown(event))


def _shown(event: wire.SupervisorEvent) -> str:
    level = click.style(f"{event.level:7}", fg=_COLOURS.get(event.level))
    return f"{event.at} {level} {event.kind:10} {event.message}"
