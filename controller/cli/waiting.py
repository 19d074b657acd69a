"""`--wait`: until what was asked of the controller is done, or cannot be done any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import click

from controller.cli.client import ControllerClient
from supervisor import wire
from supervisor.shared.asking import EXIT_NOT_FOUND, EXIT_REFUSED, CommandFailed
from supervisor.wire import Step

LOOK_AGAIN_SEC = 0.5
"""The controller tells the state, not the moment of its change."""
RUNNING = frozenset({Step.STOPPING, Step.STARTING, Step.LOADING, Step.DONE})

F = TypeVar("F", bound=Callable[..., object])


def wait_option(command: F) -> F:
    return click.option("--wait", is_flag=True, help="Return when it is done; exit 1 if it does not get that far.")(
        command
    )


def until_stopped(controller: ControllerClient, instance_id: int) -> wire.InstanceView:
    """Raises CommandFailed naming whoever goes on."""
    view = _instance(controller, instance_id)
    while view.recovery is not None:
        time.sleep(LOOK_AGAIN_SEC)
        view = _instance(controller, instance_id)
    if going_on := [f"{member.pod_ip}:{member.port}" for member in view.supervisors if member.step in RUNNING]:
        raise CommandFailed(f"held, but {', '.join(going_on)} could not be told and runs on", EXIT_REFUSED)
    return view


def until_active(controller: ControllerClient, instance_id: int) -> wire.InstanceView:
    """As long as it takes; raises CommandFailed once it is held again."""
    view = _instance(controller, instance_id)
    while view.status != "active":
        if view.held is not None:
            raise CommandFailed(f"instance {instance_id} is held: {view.held}", EXIT_REFUSED)
        time.sleep(LOOK_AGAIN_SEC)
        view = _instance(controller, instance_id)
    return view


def until_closed(controller: ControllerClient, run: wire.RunView) -> wire.RunView:
    """Raises CommandFailed with what came instead, if it is not done."""
    while run.outcome is None:
        time.sleep(LOOK_AGAIN_SEC)
        run = controller.get(f"/v1/relaunches/{run.id}", wire.RunView)
    if run.outcome != "done":
        raise CommandFailed(f"run {run.id} of instance {run.instance_id}: {run.outcome}: {run.message}", EXIT_REFUSED)
    return run


def until_gone(controller: ControllerClient, instance_id: int) -> None:
    while True:
        try:
            _instance(controller, instance_id)
        except CommandFailed as failed:
            if failed.exit_code == EXIT_NOT_FOUND:
                return
            raise
        time.sleep(LOOK_AGAIN_SEC)


def _instance(controller: ControllerClient, instance_id: int) -> wire.InstanceView:
    return controller.get(f"/v1/instances/{instance_id}", wire.InstanceView)
