"""`podvisor instance VERB INSTANCE`: what operators ask of a whole instance, from anywhere."""

from __future__ import annotations

from collections.abc import Callable

import click
import msgspec

from controller.cli.client import ControllerClient, controller_options
from controller.cli.naming import full_name, instance_argument, instance_id, known_instances
from controller.cli.waiting import until_active, until_closed, until_gone, until_stopped, wait_option
from supervisor import wire

reason_option = click.option("--reason", default="", help="Why, for whoever looks at it later.")


@click.group("instance", short_help="Do something to a whole instance.")
def command() -> None:
    """Do something to a whole instance: INSTANCE is its id, its job's name, or NAMESPACE/NAME.

    \b
    Example: podvisor instance relaunch llama-70b --wait
    """


def _verb(name: str, short_help: str | None = None) -> Callable[[Callable[..., object]], click.Command]:
    """A command of the group, with what all of them take."""

    def decorate(function: Callable[..., object]) -> click.Command:
        return command.command(name, short_help=short_help)(instance_argument(controller_options(function)))

    return decorate


@_verb("hold", "Stop the engines of INSTANCE, and keep them stopped.")
@reason_option
@wait_option
def hold(controller: ControllerClient, instance: str, reason: str, wait: bool, as_json: bool) -> None:
    """Stop the engines of INSTANCE in all its pods, and keep them stopped until it is released.

    Pods, stores and monitors stay as they are. A relaunch that is under way is ended.

    \b
    Example: podvisor hold llama-70b --reason "new network card"
    """
    id_ = instance_id(controller, instance)
    view = controller.post(f"/v1/instances/{id_}/hold", wire.Reason(reason=reason), wire.InstanceView)
    _show_instance(until_stopped(controller, id_) if wait else view, as_json)


@_verb("release")
@reason_option
@wait_option
def release(controller: ControllerClient, instance: str, reason: str, wait: bool, as_json: bool) -> None:
    """Let INSTANCE, which is held, be started again.

    One whose budget is spent needs `reset-failed` instead.

    \b
    Example: podvisor release llama-70b --wait
    """
    id_ = instance_id(controller, instance)
    view = controller.post(f"/v1/instances/{id_}/release", wire.Reason(reason=reason), wire.InstanceView)
    _show_instance(until_active(controller, id_) if wait else view, as_json)


@_verb("relaunch", "Relaunch the engines of INSTANCE in place.")
@reason_option
@wait_option
def relaunch(controller: ControllerClient, instance: str, reason: str, wait: bool, as_json: bool) -> None:
    """Relaunch the engines of INSTANCE in place, as they were started last.

    \b
    Example: podvisor instance relaunch llama-70b --wait
    """
    id_ = instance_id(controller, instance)
    run = controller.post(f"/v1/instances/{id_}/relaunch", wire.Reason(reason=reason), wire.RunView)
    _show_run(until_closed(controller, run) if wait else run, as_json)


@_verb("rollout", "Start the engines with what the unit files say now.")
@reason_option
@wait_option
def rollout(controller: ControllerClient, instance: str, reason: str, wait: bool, as_json: bool) -> None:
    """Start the engines of INSTANCE with what the unit files in all its pods say now.

    Every pod reads its files first. Where they are wrong, or not the same in all pods yet, nothing is touched and the
    difference is named: exits 1. A relaunch goes on with what the engines had.

    \b
    Example: podvisor rollout llama-70b --wait
    """
    id_ = instance_id(controller, instance)
    run = controller.post(f"/v1/instances/{id_}/rollout", wire.Reason(reason=reason), wire.RunView)
    _show_run(until_closed(controller, run) if wait else run, as_json)


@command.command("reset-failed", short_help="Forget the failures of INSTANCE.")
@click.argument("instance", required=False, shell_complete=known_instances)
@controller_options
@click.option("--all", "of_all", is_flag=True, help="Of every instance that is held for failures.")
@wait_option
def reset_failed(controller: ControllerClient, instance: str | None, of_all: bool, wait: bool, as_json: bool) -> None:
    """Forget the failures of INSTANCE: its budget is whole again, and what was held for them is started.

    \b
    Example: podvisor instance reset-failed llama-70b
    """
    if (instance is None) is not of_all:
        raise click.UsageError("name one INSTANCE, or --all")
    if instance is None:
        said = controller.post("/v1/reset-failed", wire.Reason(), wire.Said)
        click.echo(_json(said) if as_json else said.message)
        return
    id_ = instance_id(controller, instance)
    view = controller.post(f"/v1/instances/{id_}/reset-failed", wire.Reason(), wire.InstanceView)
    _show_instance(until_active(controller, id_) if wait else view, as_json)


@_verb("terminate", "End INSTANCE: its containers restart.")
@reason_option
@wait_option
def terminate(controller: ControllerClient, instance: str, reason: str, wait: bool, as_json: bool) -> None:
    """End INSTANCE: its supervisors stop everything and end with 255, and its id is used up.

    Where the platform restarts containers, a new instance comes: to stay down, hold it or scale it in.

    \b
    Example: podvisor instance terminate llama-70b --reason "wrong model"
    """
    id_ = instance_id(controller, instance)
    said = controller.post(f"/v1/instances/{id_}/terminate", wire.Reason(reason=reason), wire.Said)
    if wait:
        until_gone(controller, id_)
    click.echo(_json(said) if as_json else said.message)


def _show_instance(view: wire.InstanceView, as_json: bool) -> None:
    if as_json:
        click.echo(_json(view))
        return
    held = f", held ({view.held})" if view.held is not None else ""
    doing = f", {view.recovery.step} of run {view.recovery.run_id}" if view.recovery else ""
    click.echo(f"instance {view.id} ({full_name(view)}): {view.status}{held}{doing}")


def _show_run(run: wire.RunView, as_json: bool) -> None:
    words = run.outcome or f"begun; `podvisor relaunches {run.id}` shows it"
    click.echo(_json(run) if as_json else f"run {run.id} of instance {run.instance_id}: {words}")


def _json(answer: msgspec.Struct) -> bytes:
    return wire.encode(answer)
