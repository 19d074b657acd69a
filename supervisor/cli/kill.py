"""`podvisor kill UNIT`."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor import wire
from supervisor.cli.client import Supervisor, json_option, socket_option, unit_argument, unit_path


@click.command("kill", short_help="Send a signal to the processes of UNIT.")
@unit_argument
@click.option("-s", "--signal", metavar="SIGNAL", default="SIGTERM", show_default=True, help="By name or by number.")
@click.option(
    "--kill-whom",
    type=click.Choice([str(each) for each in wire.Whom]),
    default=str(wire.Whom.MAIN),
    show_default=True,
    help="The main process, or all of the unit.",
)
@json_option
@socket_option
def command(unit: str, signal: str, kill_whom: str, as_json: bool, socket_path: Path | None) -> None:
    """Send a signal to the processes of UNIT, as `systemctl kill`.

    A unit that ends by it was not asked to stop: its restart policy decides. `podvisor stop` stops it.

    \b
    Example: podvisor kill engine --signal SIGUSR1
    """
    message = wire.KillMsg(signal=signal, whom=wire.Whom(kill_whom))
    sent = Supervisor(socket_path).post(unit_path(unit, "kill"), message)
    if as_json:
        click.echo(sent)
        return
    view = wire.decode(wire.KillAnswer, sent)
    click.echo(f"{view.signal} sent to {view.unit}: pid {', '.join(map(str, view.pids))}")
