"""`podvisor restart UNIT`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import json_option, socket_option, unit_argument
from supervisor.cli.unit_command import change, ready, show, wait_option


@click.command("restart")
@unit_argument
@wait_option
@json_option
@socket_option
def command(unit: str, wait: bool, as_json: bool, socket_path: Path | None) -> None:
    """Stop UNIT, then start it again.

    \b
    Example: podvisor restart --wait kv-store
    """
    view = change(socket_path, unit, "restart")
    show(ready(socket_path, view) if wait else view, as_json)
