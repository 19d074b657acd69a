"""`podvisor restart UNIT...`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import json_option, socket_option, some_units_argument
from supervisor.cli.unit_command import change, local_option, one_by_one, ready, show, wait_option, warn_of_local


@click.command("restart", short_help="Stop UNITs, then start them again.")
@some_units_argument
@wait_option
@local_option("Restart")
@json_option
@socket_option
def command(units: tuple[str, ...], wait: bool, local: bool, as_json: bool, socket_path: Path | None) -> None:
    """Stop UNITs one by one, then start each again, and with it those that are bound to it or part of it.

    The engine of a gang is relaunched in all its pods, through the controller; without that nothing is done: exits 69.

    \b
    Example: podvisor restart --wait kv-store
    """

    def restart(unit: str) -> None:
        view = change(socket_path, unit, "restart?local=1" if local else "restart")
        if local:
            warn_of_local()
        show(ready(socket_path, view) if wait else view, as_json)

    one_by_one(units, restart)
