"""`podvisor stop UNIT`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import json_option, socket_option, unit_argument
from supervisor.cli.unit_command import change, show


@click.command("stop")
@unit_argument
@click.option("--local", is_flag=True, help="Stop one engine of a gang here alone; the others hang without it.")
@json_option
@socket_option
def command(unit: str, local: bool, as_json: bool, socket_path: Path | None) -> None:
    """Stop UNIT, and before it those that require it.

    Each with its whole process tree. Returns when nothing of it is left.

    \b
    Example: podvisor stop kv-store
    """
    show(change(socket_path, unit, "stop?local=1" if local else "stop"), as_json)
