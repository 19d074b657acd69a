"""`podvisor relaunch`: relaunch the engines of this pod's instance, in place."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor import wire
from supervisor.cli.client import Supervisor, json_option, socket_option
from supervisor.cli.waiting import shown_waiting


@click.command("relaunch")
@json_option
@socket_option
def command(as_json: bool, socket_path: Path | None) -> None:
    """Relaunch the engines of the instance in place.

    All of them, through the controller; without one, the engine of this pod.

    \b
    Example: podvisor relaunch
    """
    with shown_waiting(socket_path):
        answer = Supervisor(socket_path).post("/v1/engine/relaunch")
    click.echo(answer if as_json else wire.decode(wire.RelaunchBegun, answer).message)
