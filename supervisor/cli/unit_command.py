"""What the commands share that do one thing to each of some units: start, stop, restart, reset-failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import click

from supervisor import wire
from supervisor.cli.client import CommandFailed, Supervisor, json_option, socket_option, some_units_argument, unit_path
from supervisor.cli.waiting import shown_waiting
from supervisor.shared.asking import EXIT_REFUSED

F = TypeVar("F", bound=Callable[..., object])

LOOK_AGAIN_SEC = 0.2
"""The supervisor tells the state, not the moment of its change."""


def unit_command(verb: str, description: str) -> click.Command:
    """`podvisor VERB UNIT...`, which answers with each unit as it is afterwards."""

    @click.command(verb, help=f"{description}\n\n\b\nExample: podvisor {verb} kv-store")
    @some_units_argument
    @json_option
    @socket_option
    def command(units: tuple[str, ...], as_json: bool, socket_path: Path | None) -> None:
        one_by_one(units, lambda unit: show(change(socket_path, unit, verb), as_json))

    return command


def one_by_one(units: Iterable[str], do: Callable[[str], None]) -> None:
    """What fails keeps none of those after it. Exits as the first that failed."""
    failures = []
    for unit in units:
        try:
            do(unit)
        except CommandFailed as failure:
            failure.show()
            failures.append(failure)
    if failures:
        raise SystemExit(failures[0].exit_code)


def wait_option(command: F) -> F:
    return click.option("--wait", is_flag=True, help="Return when it is ready; exit 1 if it does not get that far.")(
        command
    )


def local_option(what: str) -> Callable[[F], F]:
    return click.option("--local", is_flag=True, help=f"{what} one rank of a gang in this pod alone.")


def warn_of_local() -> None:
    click.echo(
        "podvisor: done in this pod alone: if it is one rank of a gang, the others do not serve without it", err=True
    )


def change(socket_path: Path | None, unit: str, verb: str) -> wire.UnitView:
    """`verb` may have a query."""
    path = unit_path(unit, verb)
    with shown_waiting(socket_path, unit):
        return wire.decode(wire.UnitView, Supervisor(socket_path).post(path))


def show(view: wire.UnitView, as_json: bool) -> None:
    if as_json:
        click.echo(wire.encode(view))
        return
    further = f"; {view.message}" if view.message else ""
    click.echo(f"{view.name}: {view.state} ({view.sub_state}){further}")


def ready(socket_path: Path | None, view: wire.UnitView) -> wire.UnitView:
    """Every start has its own deadline, so this ends; a back-off is a start that did not get that far."""
    with shown_waiting(socket_path, view.name):
        while view.state in ("activating", "deactivating") and view.sub_state != "auto-restart":
            time.sleep(LOOK_AGAIN_SEC)
            view = Supervisor(socket_path).get(unit_path(view.name), wire.UnitView)
    # What is inactive has done its work, or its condition was not met; an engine is waiting for somebody.
    if view.state != "active" and (view.state != "inactive" or view.type == "engine"):
        raise CommandFailed(f"{view.name} is {view.state} ({view.sub_state}): {view.reason}", EXIT_REFUSED)
    return view
