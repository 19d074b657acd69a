"""`podvisor drain`: the first half of an orderly stop, for preStop hooks."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor import wire
from supervisor.cli.client import Supervisor, json_option, socket_option


@click.command("drain")
@json_option
@socket_option
def command(as_json: bool, socket_path: Path | None) -> None:
    """Take this pod out of service, and finish its requests.

    What SIGTERM does before it stops the units, and to be followed by it: the pod is no longer ready, the controller
    knows that it leaves, and the engine ends when its requests are done. Returns then. It is not taken back: an engine
    of this pod is not started again.

    \b
    Example: podvisor drain
    """
    answer = Supervisor(socket_path).post_at_leisure("/v1/drain")
    click.echo(answer if as_json else wire.decode(wire.Drained, answer).message)
