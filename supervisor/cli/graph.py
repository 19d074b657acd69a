"""`podvisor graph`: which unit needs which, of a running supervisor or of unit files."""

from __future__ import annotations

from pathlib import Path

import click

from supervisor import wire
from supervisor.cli.client import CommandFailed, Supervisor, json_option, socket_option
from supervisor.cli.drawing import ascii_lines, dot_lines, mermaid_lines
from supervisor.shared.asking import EXIT_WRONG_FILES

_FORMATS = {"ascii": ascii_lines, "dot": dot_lines, "mermaid": mermaid_lines}


@click.command("graph", short_help="Draw the units and what they require and follow.")
@click.option("--format", "style", type=click.Choice([*_FORMATS]), default="ascii", show_default=True, help="As what.")
@click.option(
    "--units",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Draw these unit files instead of asking a supervisor; may be repeated, as with `podvisor run`.",
)
@json_option
@socket_option
def command(style: str, directories: tuple[Path, ...], as_json: bool, socket_path: Path | None) -> None:
    """Draw the units with what they require, follow, come after, want and conflict with.

    ==> is a requirement, ~~> follows stops and restarts, --> is order alone, ..> is a wish, x-x is a conflict. Exits 78
    if the unit files are wrong.

    \b
    Example: podvisor graph --units units/ --format mermaid
    """
    view = _of_files(directories) if directories else Supervisor(socket_path).get("/v1/graph", wire.GraphView)
    if as_json:
        click.echo(wire.encode(view))
        return
    for line in _FORMATS[style](view):
        click.echo(line)


def _of_files(directories: tuple[Path, ...]) -> wire.GraphView:
    from supervisor.unit.errors import ConfigurationError
    from supervisor.unit.parse import load_units
    from supervisor.unit_views import graph_view

    try:
        return graph_view(load_units(directories), {})
    except ConfigurationError as error:
        raise CommandFailed(str(error), EXIT_WRONG_FILES) from error
