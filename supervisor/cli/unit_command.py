"""The commands that do one thing to one unit: start, stop, restart, reset-failed."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor import wire
from supervisor.cli.client import Supervisor, json_option, socket_option


def unit_command(verb: str, description: str) -> click.Command:
    """`podvisor VERB UNIT`, which answers with the unit as it is afterwards."""

    @click.command(verb, help=f"{description}\n\n\b\nExample: podvisor {verb} kv-store")
    @click.argument("unit")
    @click.option("--local", is_flag=True, help="Do it to a coordinated engine here alone; its gang does not follow.")
    @json_option
    @socket_option
    def command(unit: str, local: bool, as_json: bool, socket_path: Path | None) -> None:
        answer = Supervisor(socket_path).post(f"/v1/units/{unit}/{verb}" + ("?local=1" if local else ""))
        view = wire.decode(wire.UnitView, answer)
        click.echo(answer if as_json else f"{view.name}: {view.state} ({view.sub_state})")

    return command
