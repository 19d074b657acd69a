"""`podvisor instances`: which instances there are, how they are, and what is being done about it."""

from __future__ import annotations

import click

from controller.cli.client import ControllerClient, controller_options
from controller.cli.naming import instance_id, known_instances
from supervisor import wire
from supervisor.shared.words import duration, table

_COLOURS = {"active": "green", "initial": "yellow", "inactive": "red", "deleted": "red"}


@click.command("instances", short_help="Show the instances, or one INSTANCE in detail.")
@click.argument("instance", required=False, shell_complete=known_instances)
@controller_options
def command(controller: ControllerClient, instance: str | None, as_json: bool) -> None:
    """Show the instances, or one INSTANCE in detail: its id, its job's name, or NAMESPACE/NAME.

    \b
    Example: podvisor instances --controller http://controller:1026
    """
    if instance is None:
        views = controller.get("/v1/instances", wire.InstancesView)
        click.echo(wire.encode(views)) if as_json else _show(views.instances)
        return
    view = controller.get(f"/v1/instances/{instance_id(controller, instance)}", wire.InstanceView)
    click.echo(wire.encode(view) if as_json else _detail(view))


def _show(views: tuple[wire.InstanceView, ...]) -> None:
    if not views:
        click.echo("no instances: no supervisor has registered")
        return
    rows = [
        (
            str(view.id),
            view.job_name if view.namespace == "default" else f"{view.namespace}/{view.job_name}",
            view.status,
            str(view.epoch),
            str(len(view.supervisors)),
            f"{sum(endpoint.ready for endpoint in view.endpoints)}/{len(view.endpoints)}",
            _recovery(view),
            view.reason,
        )
        for view in views
    ]
    header = ("ID", "JOB", "STATUS", "EPOCH", "PODS", "READY", "RECOVERY", "REASON")
    first, *lines = table(header, rows).splitlines()
    click.echo(first)
    for view, line in zip(views, lines, strict=True):
        click.secho(line, fg=_COLOURS.get(view.status))


def _recovery(view: wire.InstanceView) -> str:
    return f"{view.recovery.strategy}: {view.recovery.step}" if view.recovery else "-"


def _detail(view: wire.InstanceView) -> str:
    lines = [
        f"instance {view.id}: {view.namespace}/{view.job_name}, model {view.model_name}, role {view.role}",
        f"  status: {view.status}, epoch {view.epoch}: {view.reason}",
    ]
    if view.recovery:
        recovery = view.recovery
        lines.append(
            f"recovery: {recovery.strategy}, step {recovery.step}, since {recovery.since}, run {recovery.run_id}"
        )
    pods = [
        (
            str(member.node_rank),
            f"{member.pod_ip}:{member.port}",
            member.step,
            str(member.epoch),
            duration(member.heartbeat_age_sec),
            duration(member.freeze_remaining_sec) if member.freeze_remaining_sec else "-",
            member.boot_id or "-",
        )
        for member in view.supervisors
    ]
    endpoints = [
        (
            str(endpoint.id),
            f"{endpoint.ip}:{endpoint.port}",
            endpoint.status,
            "yes" if endpoint.ready else "no",
        )
        for endpoint in view.endpoints
    ]
    return "\n".join(
        (
            *lines,
            "",
            table(("RANK", "SUPERVISOR", "STEP", "EPOCH", "HEARD", "FROZEN", "BOOT"), pods),
            "",
            table(("ENDPOINT", "ADDRESS", "STATUS", "READY"), endpoints),
        )
    )
