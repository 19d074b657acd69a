"""`podvisor relaunches`: the runs there were and are, with their steps and how long each took."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from controller.cli.client import ControllerClient, controller_options
from controller.cli.naming import instance_id, known_instances
from supervisor import wire
from supervisor.shared.asking import EXIT_NOT_FOUND, EXIT_REFUSED, CommandFailed
from supervisor.shared.words import duration, table

_COLOURS = {"done": "green", "recovered_itself": "green", "running": "yellow"}


@click.command("relaunches", short_help="Show the relaunch runs, or one RUN with its steps.")
@click.argument("run", required=False)
@click.option("--instance", shell_complete=known_instances, help="Only its runs: id, job's name, or NAMESPACE/NAME.")
@controller_options
def command(controller: ControllerClient, run: str | None, instance: str | None, as_json: bool) -> None:
    """Show the relaunch runs, newest first, or one RUN with its steps: its id, or how that begins.

    \b
    Example: podvisor relaunches --instance llama-70b
    """
    views = controller.get("/v1/relaunches", wire.RelaunchesView).relaunches
    if instance is not None:
        wanted = instance_id(controller, instance)
        views = tuple(view for view in views if view.instance_id == wanted)
    if run is not None:
        view = only(run, views)
        click.echo(wire.encode(view) if as_json else _detail(view))
    elif as_json:
        click.echo(wire.encode(wire.RelaunchesView(relaunches=views)))
    else:
        _show(views)


def only(beginning: str, views: tuple[wire.RunView, ...]) -> wire.RunView:
    """Raises CommandFailed if no run is meant, or more than one."""
    found = [view for view in views if view.id.startswith(beginning)]
    if not found:
        raise CommandFailed(f"no run has the id {beginning}; `podvisor relaunches` shows those kept", EXIT_NOT_FOUND)
    if len(found) > 1:
        which = ", ".join(view.id for view in found)
        raise CommandFailed(f"{beginning} may be any of {which}: write more of it", EXIT_REFUSED)
    return found[0]


def _show(views: tuple[wire.RunView, ...]) -> None:
    if not views:
        click.echo("no relaunches yet")
        return
    rows = [
        (
            view.id,
            str(view.instance_id),
            str(view.epoch),
            view.reason,
            _outcome(view),
            view.steps[-1].name if view.steps else "queued",
            duration(_took(view)),
            view.message,
        )
        for view in views
    ]
    header = ("RUN", "INSTANCE", "EPOCH", "WHY", "OUTCOME", "LAST STEP", "TOOK", "MESSAGE")
    first, *lines = table(header, rows).splitlines()
    click.echo(first)
    for view, line in zip(views, lines, strict=True):
        click.secho(line, fg=_COLOURS.get(_outcome(view), "red"))


def _detail(view: wire.RunView) -> str:
    lines = [
        f"run {view.id} of instance {view.instance_id}, epoch {view.epoch}: {view.reason}",
        f" outcome: {_outcome(view)}, phase {view.phase}, {duration(_took(view))}: {view.message}",
        f"    pods: {', '.join(view.supervisors) or '-'}",
    ]
    steps = [
        (step.name, step.started_at, duration(_between(step.started_at, step.ended_at)), step.error or "")
        for step in view.steps
    ]
    return "\n".join((*lines, "", table(("STEP", "STARTED", "TOOK", "ERROR"), steps)))


def _outcome(view: wire.RunView) -> str:
    return view.outcome or "running"


def _took(view: wire.RunView) -> float | None:
    if not view.steps:
        return None
    return _between(view.steps[0].started_at, view.steps[-1].ended_at if view.outcome else None)


def _between(started_at: str, ended_at: str | None) -> float:
    """Until now for what has not ended. On another machine's clock a running step may seem negative."""
    ended = datetime.fromisoformat(ended_at) if ended_at else datetime.now(UTC)
    return max(0.0, (ended - datetime.fromisoformat(started_at)).total_seconds())
