"""`podvisor relaunch`: relaunch the engines of this pod's instance, in place."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import Supervisor, socket_option


@click.command("relaunch")
@socket_option
def command(socket_path: Path | None) -> None:
    """Relaunch the engine: of the whole instance through the controller, or here if it has none.

    \b
    Example: podvisor relaunch
    """
    click.echo(Supervisor(socket_path).post("/v1/engine/relaunch"), nl=False)
