"""`podvisor logs UNIT`: the tail that the supervisor keeps in memory, and what comes after it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from supervisor.cli.client import Supervisor, json_option, socket_option, unit_argument, unit_path

EXIT_INTERRUPTED = 130
"""As shells tell SIGINT; this is how following ends."""


@click.command("logs")
@unit_argument
@click.option(
    "-n", "--lines", type=click.IntRange(0), metavar="N", default=50, show_default=True, help="How many lines."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes; Ctrl-C ends it.")
@json_option
@socket_option
def command(unit: str, lines: int, follow: bool, as_json: bool, socket_path: Path | None) -> None:
    """Show the last output of UNIT.

    With --json, one object for each line.

    \b
    Example: podvisor logs -f engine
    """
    path = unit_path(unit, f"logs?lines={lines}") + ("&follow=1" if follow else "")
    try:
        with Supervisor(socket_path).lines(path) as stream:
            for line in stream:
                click.echo(json.dumps({"unit": unit, "line": line}, ensure_ascii=False) if as_json else line)
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
