"""Which instance is meant: by its id, or by its job's name as people know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from controller.cli.client import ControllerClient
from supervisor import wire
from supervisor.shared.asking import EXIT_NOT_FOUND, EXIT_REFUSED, CommandFailed

COMPLETION_SEC = 0.5
"""How long somebody who has pressed TAB is kept waiting."""

F = TypeVar("F", bound=Callable[..., object])


def instance_argument(command: F) -> F:
    """INSTANCE, completed from the controller."""
    return click.argument("instance", shell_complete=known_instances)(command)


def instance_id(controller: ControllerClient, written: str) -> int:
    """Raises CommandFailed if there is none, or more than one."""
    if written.isdecimal():
        return int(written)
    views = controller.get("/v1/instances", wire.InstancesView).instances
    found = [view for view in views if written in (view.job_name, full_name(view))]
    if not found:
        known = ", ".join(full_name(view) for view in views) or "none"
        raise CommandFailed(f"no living instance is called {written!r}; there are: {known}", EXIT_NOT_FOUND)
    if len(found) > 1:
        which = ", ".join(full_name(view) for view in found)
        raise CommandFailed(f"{written!r} may be any of {which}: name it with its namespace", EXIT_REFUSED)
    return found[0].id


def full_name(view: wire.InstanceView) -> str:
    return f"{view.namespace}/{view.job_name}"


def known_instances(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """None at all if nobody answers at once: a shell is no place for an error message."""
    told = context.params
    try:
        controller = ControllerClient(
            told["url"], told.get("token_file"), told.get("tls_dir"), answer_sec=COMPLETION_SEC
        )
        names = [full_name(view) for view in controller.get("/v1/instances", wire.InstancesView).instances]
    except CommandFailed:
        return []
    return sorted(name for name in names if name.startswith(incomplete))
