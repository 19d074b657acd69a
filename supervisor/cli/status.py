"""`podvisor status`: at a glance, what a person on call wants to know of this pod."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from supervisor import wire
from supervisor.cli.client import (
    EXIT_NOT_RUNNING,
    Supervisor,
    json_option,
    optional_unit_argument,
    socket_option,
    unit_path,
)
from supervisor.shared.words import duration, table
from supervisor.unit.states import SubState

_COLOURS = {"active": "green", "activating": "yellow", "deactivating": "yellow", "failed": "red"}


@click.command("status")
@optional_unit_argument
@json_option
@socket_option
def command(unit: str | None, as_json: bool, socket_path: Path | None) -> None:
    """Show the units, or one UNIT in detail.

    Exits 3 if that UNIT is neither active nor on its way to be.

    \b
    Example: podvisor status engine
    """
    supervisor = Supervisor(socket_path)
    if unit is None:
        _show_all(supervisor.get("/v1/units", wire.UnitsView), as_json)
        return
    view = supervisor.get(unit_path(unit), wire.UnitView)
    click.echo(wire.encode(view) if as_json else _detail(view))
    if view.state not in ("active", "activating"):
        raise SystemExit(EXIT_NOT_RUNNING)


def _show_all(view: wire.UnitsView, as_json: bool) -> None:
    if as_json:
        click.echo(wire.encode(view))
        return
    click.echo(_supervisor_line(view.supervisor))
    rows = [
        (
            unit.name,
            f"{unit.state} ({unit.sub_state})",
            str(unit.pid or "-"),
            duration(_age_sec(unit)),
            str(unit.restarts),
            _last_words(unit),
        )
        for unit in view.units
    ]
    text = table(("UNIT", "STATE", "PID", "SINCE", "RESTARTS", "LAST"), rows)
    header, *lines = text.split("\n")
    click.echo(header)
    for unit, line in zip(view.units, lines, strict=True):
        click.secho(line, fg=_COLOURS.get(unit.state))


def _supervisor_line(view: wire.SupervisorView) -> str:
    parts = [f"podvisor {view.version}, pid {view.pid}, up {duration(view.uptime_sec)}"]
    if view.instance_id:
        parts.append(f"instance {view.instance_id}, epoch {view.epoch}")
    if view.leaving is not None:
        parts.append(f"leaving ({view.leaving})")
    if view.step is wire.Step.HELD:
        parts.append("held with its gang")
    elif view.step not in (wire.Step.IDLE, wire.Step.DONE):
        parts.append(f"relaunch: {view.step}")
    if view.freeze_remaining_sec > 0:
        parts.append(f"frozen for {duration(view.freeze_remaining_sec)}")
    if view.arbiter_count:
        parts.append(f"abnormal ticks: {view.arbiter_count}")
    if view.relaunch_count:
        parts.append(f"{view.relaunch_count} relaunch{'es' if view.relaunch_count > 1 else ''}")
    if view.previous_container:
        parts.append(f"previous container: {view.previous_container}")
    if view.controller:
        parts.append(view.controller)
    return ", ".join(parts)


def _last_words(unit: wire.UnitView) -> str:
    """Why it is where it is; of a unit that is well its last exit, since `ready` stands there already."""
    last = unit.last_exit.cause if unit.last_exit is not None else ""
    words = last if last and unit.sub_state == SubState.READY else unit.reason or last
    if unit.next_restart_in_sec is not None:
        words = f"restart in {duration(unit.next_restart_in_sec)}; {words}"
    if unit.changed:
        words = f"changed: {', '.join(unit.changed)}; {words}"
    return _in_one_line(words)


def _in_one_line(words: str) -> str:
    """They may quote a command line."""
    return " ".join(words.split())


def _age_sec(unit: wire.UnitView) -> float:
    """Of its state. The supervisor's clock is ours."""
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(unit.since)).total_seconds())


def _detail(unit: wire.UnitView) -> str:
    lines = [f"{unit.name} - {unit.description}" if unit.description else unit.name]
    lines.append(f"   state: {unit.state} ({unit.sub_state}) since {unit.since}, for {duration(_age_sec(unit))}")
    lines.append(f"     pid: {unit.pid or '-'}   restarts: {unit.restarts}")
    if unit.epoch is not None:
        lines.append(f"   epoch: {unit.epoch}")
    if unit.reason:
        lines.append(f"  reason: {_in_one_line(unit.reason)}")
    if unit.changed:
        lines.append(f" changed: {', '.join(unit.changed)}: the files differ from what runs")
    if unit.last_exit is not None:
        last = unit.last_exit
        process = f"pid {last.pid}, " if last.pid else ""  # it may never have got as far as a process
        unasked = "" if last.asked else ", not asked for"  # who asked stands in the cause
        cause = _in_one_line(last.cause) + unasked
        lines.append(f"    last: {process}{cause}, after {duration(last.uptime_sec)}, {last.at}")
        lines.extend(f"          | {line}" for line in last.log_tail[-10:])
    return "\n".join(lines)
