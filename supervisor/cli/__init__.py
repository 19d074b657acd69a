"""The `podvisor` command: each subcommand is a module of its own, imported when it is called.

Nothing decides here. Other packages add commands through the entry-point group `podvisor.commands`, so that the
supervisor never imports the controller.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from supervisor.unit.suggest import nearest
from supervisor.version import VERSION

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

_COMMANDS = (
    *("run", "verify", "schema", "graph", "convert"),
    *("status", "logs", "events", "exits", "kill"),
    *("start", "stop", "restart", "reset-failed", "relaunch", "reload", "drain"),
    *("completion",),
)
ENTRY_POINTS = "podvisor.commands"


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *sorted(point.name for point in _entry_points())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS:
            return _command(importlib.import_module(f"supervisor.cli.{cmd_name.replace('-', '_')}").command)
        for point in _entry_points():
            if point.name != cmd_name:
                continue
            try:
                return _command(point.load())
            except ImportError as error:
                return _broken(cmd_name, error)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            guess = nearest(args[0], self.list_commands(ctx))
            if guess is None or args[0].startswith("-"):
                raise
            ctx.fail(f"No such command {args[0]!r}; did you mean {guess!r}?")


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # `run` is never looked up here and must not pay for it

    return entry_points(group=ENTRY_POINTS)


def _broken(name: str, error: ImportError) -> click.Command:
    """A command of another package that cannot be loaded must not take the help of all the others with it."""

    def fail() -> None:
        raise click.ClickException(f"cannot load the command {name}: {error}")

    return click.Command(name, callback=fail, help=f"(cannot be loaded: {error})")


def _command(found: object) -> click.Command:
    assert isinstance(found, click.Command), f"{found!r} is no command"
    return found


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="podvisor")
def podvisor() -> None:
    """Process manager for LLM-inference pods.

    \b
    Example: podvisor run --units /etc/podvisor/units
    """
