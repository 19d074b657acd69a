"""`podvisor stop UNIT`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import json_option, socket_option, unit_argument
from supervisor.cli.unit_command import change, local_option, show, warn_of_local


@click.command("stop")
@unit_argument
@local_option("Stop")
@json_option
@socket_option
def command(unit: str, local: bool, as_json: bool, socket_path: Path | None) -> None:
    """Stop UNIT, and before it those that require it, are bound to it or part of it.

    Each with its whole process tree. Returns when nothing of it is left; exits 1 if something cannot be killed.
    The engine of a gang is stopped in all its pods, through the controller, and held until it is started again;
    without the controller nothing is done: exits 69.

    \b
    Example: podvisor stop kv-store
    """
    view = change(socket_path, unit, "stop?local=1" if local else "stop")
    if local:
        warn_of_local()
    show(view, as_json)
