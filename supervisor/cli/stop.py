"""`podvisor stop UNIT...`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import json_option, socket_option, some_units_argument
from supervisor.cli.unit_command import change, local_option, one_by_one, show, warn_of_local


@click.command("stop", short_help="Stop UNITs, and before them those that require them.")
@some_units_argument
@local_option("Stop")
@json_option
@socket_option
def command(units: tuple[str, ...], local: bool, as_json: bool, socket_path: Path | None) -> None:
    """Stop UNITs one by one, and before each those that require it, are bound to it or part of it.

    Each with its whole process tree. Returns when nothing of it is left; exits 1 if something cannot be killed.
    The engine of a gang is stopped in all its pods, through the controller, and held until it is started again;
    without the controller nothing is done: exits 69.

    \b
    Example: podvisor stop kv-store
    """

    def stop(unit: str) -> None:
        view = change(socket_path, unit, "stop?local=1" if local else "stop")
        if local:
            warn_of_local()
        show(view, as_json)

    one_by_one(units, stop)
