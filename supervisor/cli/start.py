"""`podvisor start UNIT`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import json_option, socket_option, unit_argument
from supervisor.cli.unit_command import change, local_option, ready, show, wait_option


@click.command("start")
@unit_argument
@wait_option
@click.option(
    "--standalone",
    is_flag=True,
    help="Start the engine of a gang where the settings place it, because there is no controller.",
)
@local_option("Start what was stopped with --local:")
@json_option
@socket_option
def command(unit: str, wait: bool, standalone: bool, local: bool, as_json: bool, socket_path: Path | None) -> None:
    """Start UNIT and wait until its process runs.

    The engine of a gang is started in all its pods, through the controller; without that nothing is done: exits 69.

    \b
    Example: podvisor start --wait kv-store
    """
    how = "?standalone=1" if standalone else "?local=1" if local else ""
    view = change(socket_path, unit, f"start{how}")
    show(ready(socket_path, view) if wait else view, as_json)
