"""commands.md: every command with the help that it prints."""

from __future__ import annotations

from collections.abc import Iterator

import click

from generators import markdown
from supervisor.cli import podvisor

SOURCES = ("supervisor/cli", "controller/cli")
COLUMNS = 110


def page() -> str:
    context = _context(podvisor, "podvisor", None)
    names = podvisor.list_commands(context)
    parts = [_section("podvisor", podvisor, context)]
    for name in names:
        command = podvisor.get_command(context, name)
        assert command is not None, name
        parts += _sections(f"podvisor {name}", command, _context(command, name, context))
    return markdown.page("Commands", SOURCES, *parts)


def _sections(title: str, command: click.Command, context: click.Context) -> Iterator[str]:
    yield _section(title, command, context)
    for name, below in sorted(command.commands.items()) if isinstance(command, click.Group) else ():
        yield from _sections(f"{title} {name}", below, _context(below, name, context))


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    """Not as wide as this terminal: as wide as every page."""
    return click.Context(command, parent, name, terminal_width=COLUMNS, help_option_names=["-h", "--help"])


def _section(title: str, command: click.Command, context: click.Context) -> str:
    return f"## {title}\n\n```text\n{command.get_help(context).rstrip()}\n```"
