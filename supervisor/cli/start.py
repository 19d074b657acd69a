"""`podvisor start UNIT`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import json_option, socket_option, unit_path
from supervisor.cli.unit_command import change


@click.command("start")
@click.argument("unit")
@click.option(
    "--standalone",
    is_flag=True,
    help="Start the engine of a gang where the settings place it, because there is no controller.",
)
@json_option
@socket_option
def command(unit: str, standalone: bool, as_json: bool, socket_path: Path | None) -> None:
    """Start UNIT and wait until its process runs.

    \b
    Example: podvisor start kv-store
    """
    change(socket_path, unit_path(unit, "start") + ("?standalone=1" if standalone else ""), as_json)
