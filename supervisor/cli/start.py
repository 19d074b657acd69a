"""`podvisor start UNIT...`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import json_option, socket_option, some_units_argument
from supervisor.cli.unit_command import change, local_option, one_by_one, ready, show, wait_option


@click.command("start", short_help="Start UNITs and wait until their processes run.")
@some_units_argument
@wait_option
@click.option(
    "--standalone",
    is_flag=True,
    help="Start the engine of a gang where the settings place it, because there is no controller.",
)
@local_option("Start what was stopped with --local:")
@json_option
@socket_option
def command(
    units: tuple[str, ...], wait: bool, standalone: bool, local: bool, as_json: bool, socket_path: Path | None
) -> None:
    """Start UNITs one by one, and wait until the process of each runs.

    The engine of a gang is started in all its pods, through the controller; without that nothing is done: exits 69.

    \b
    Example: podvisor start --wait kv-store
    """
    how = "?standalone=1" if standalone else "?local=1" if local else ""

    def start(unit: str) -> None:
        view = change(socket_path, unit, f"start{how}")
        show(ready(socket_path, view) if wait else view, as_json)

    one_by_one(units, start)
