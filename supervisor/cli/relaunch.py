"""`podvisor relaunch`: relaunch the engines of this pod's instance, in place."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor.cli.client import Supervisor, socket_option


@click.command("relaunch")
@socket_option
def command(socket_path: Path | None) -> None:
    """Relaunch the engines of the instance in place.

    All of them, through the controller; without one, the engine of this pod.

    \b
    Example: podvisor relaunch
    """
    click.echo(Supervisor(socket_path).post("/v1/engine/relaunch"), nl=False)
