"""The commands that do one thing to one unit: start, stop, restart, reset-failed."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor import wire
from supervisor.cli.client import Supervisor, json_option, socket_option, unit_path


def unit_command(verb: str, description: str) -> click.Command:
    """`podvisor VERB UNIT`, which answers with the unit as it is afterwards."""

    @click.command(verb, help=f"{description}\n\n\b\nExample: podvisor {verb} kv-store")
    @click.argument("unit")
    @json_option
    @socket_option
    def command(unit: str, as_json: bool, socket_path: Path | None) -> None:
        change(socket_path, unit_path(unit, verb), as_json)

    return command


def change(socket_path: Path | None, path: str, as_json: bool) -> None:
    answer = Supervisor(socket_path).post(path)
    view = wire.decode(wire.UnitView, answer)
    click.echo(answer if as_json else f"{view.name}: {view.state} ({view.sub_state})")
