"""`podvisor reload`: let the running supervisor read the unit files again."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor import wire
from supervisor.cli.client import CommandFailed, Supervisor, json_option, socket_option
from supervisor.cli.waiting import shown_waiting
from supervisor.shared.asking import EXIT_WRONG_FILES
from supervisor.shared.words import table

_COLOURS = {"start": "green", "restart": "yellow", "stop": "red", "hold": "magenta"}
_IN_WORDS = {
    True: {"start": "would start", "stop": "would stop", "restart": "would restart", "apply": "would apply"},
    False: {"start": "started", "stop": "stopped", "restart": "restarted", "apply": "applied"},
}
_EITHER_WAY = {"hold": "held back", "nothing": "-"}


@click.command("reload")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@json_option
@socket_option
def command(dry_run: bool, as_json: bool, socket_path: Path | None) -> None:
    """Read the unit files again and become what they say.

    New units are started, units that are gone are stopped, and of those that have changed only those are restarted
    that cannot have it otherwise. A unit that somebody stopped stays down, and an engine of a gang is never restarted
    alone. Wrong files change nothing: exits 78 with every problem. Settings are not reloaded.

    \b
    Example: podvisor reload --dry-run
    """
    try:
        with shown_waiting(socket_path):
            answer = Supervisor(socket_path).post("/v1/reload" + ("?dry_run=1" if dry_run else ""))
    except CommandFailed as failed:
        if not as_json or failed.exit_code != EXIT_WRONG_FILES:
            raise
        click.echo(failed.body)
        raise SystemExit(EXIT_WRONG_FILES) from failed
    click.echo(answer) if as_json else _show(wire.decode(wire.ReloadView, answer))


def _show(view: wire.ReloadView) -> None:
    words = _IN_WORDS[view.dry_run] | _EITHER_WAY
    shown = [unit for unit in view.units if unit.change != "unchanged"]
    rows = [(unit.name, unit.change, words[unit.action], _why(unit)) for unit in shown]
    if rows:
        header, *lines = table(("UNIT", "FILES", "DONE" if not view.dry_run else "PLAN", "KEYS"), rows).split("\n")
        click.echo(header)
        for unit, line in zip(shown, lines, strict=True):
            click.secho(line, fg=_COLOURS.get(unit.action))
    if any(change.takes == "restart" for unit in shown for change in unit.keys):
        click.echo("* takes a restart")
    unchanged = len(view.units) - len(shown)
    click.echo(f"{unchanged} unit{'' if unchanged == 1 else 's'} unchanged")
    for survivor in view.survivors:
        click.secho(f"not gone: {survivor}", fg="red")
    if view.settings:
        click.echo(f"settings differ and are not reloaded (start podvisor anew): {', '.join(view.settings)}")


def _why(unit: wire.UnitReloadView) -> str:
    keys = ", ".join(f"{change.key}{'*' if change.takes == 'restart' else ''}" for change in unit.keys)
    return "; ".join(filter(None, (keys, unit.reason)))
