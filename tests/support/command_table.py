"""Every `podvisor` command there is, as the tests that hold for all of them look at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from supervisor.cli import podvisor

CONTEXT = click.Context(podvisor, info_name="podvisor")
NOT_ANSWERING = frozenset({"run", "controller", "demo", "completion"})
"""Programs that run, and a script for a shell: they have no answer that could be JSON."""


def commands() -> dict[str, click.Command]:
    """By name, which for one of a group is two words."""
    found = {name: podvisor.get_command(CONTEXT, name) for name in podvisor.list_commands(CONTEXT)}
    return dict(_with_those_below({name: command for name, command in found.items() if command is not None}))


def _with_those_below(found: Mapping[str, click.Command]) -> Iterator[tuple[str, click.Command]]:
    for name, command in found.items():
        if isinstance(command, click.Group):
            yield from _with_those_below({f"{name} {word}": below for word, below in command.commands.items()})
        else:
            yield name, command


def option(command: click.Command, name: str) -> click.Option | None:
    return next((each for each in command.params if isinstance(each, click.Option) and name in each.opts), None)


def arguments(command: click.Command, unit: str) -> list[str]:
    """What has to be said beside the name, about one unit."""
    needed = [each for each in command.params if isinstance(each, click.Argument) and each.required]
    return [unit for _ in needed]


def of_supervisor() -> dict[str, click.Command]:
    """Those that ask a running supervisor."""
    return {name: each for name, each in commands().items() if option(each, "--socket") and name not in NOT_ANSWERING}


def of_controller() -> dict[str, click.Command]:
    return {
        name: each for name, each in commands().items() if option(each, "--controller") and name not in NOT_ANSWERING
    }


def of_units() -> dict[str, click.Command]:
    """Those that are about units of a running supervisor, needed or not."""
    named = {"unit", "units"}
    return {name: each for name, each in of_supervisor().items() if any(p.name in named for p in each.params)}
