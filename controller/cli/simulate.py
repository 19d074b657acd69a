"""`podvisor simulate`: days of a fleet's life in seconds, to see what a setting or a fault is worth."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from controller.simulation import scenarios
from controller.simulation.comparison import compare
from controller.simulation.picture import CannotDraw, draw
from controller.simulation.report import text
from controller.simulation.scenario_file import load
from supervisor import wire
from supervisor.settings_file import ConfigurationError

EXIT_CONFIGURATION = 78
"""Bad configuration: every problem is on stderr."""


@click.command("simulate", short_help="Simulate days of a fleet, and its faults.")
@click.argument("scenario", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), help="Draw the lost time, too.")
@click.option("--examples", is_flag=True, help="Say where the scenarios are that come with podvisor.")
def command(scenario: Path | None, png: Path | None, *, as_json: bool, examples: bool) -> None:
    """Simulate the fleet of SCENARIO, and the same faults where only containers restart; exits 78 if it is wrong.

    SCENARIO is a TOML file, or the name of one that comes with podvisor. Nothing is started, and the same file gives
    the same output.

    \b
    Example: podvisor simulate steady-fleet --png lost.png
    """
    if examples:
        click.echo("\n".join(str(path) for path in scenarios.shipped()))
        return
    if scenario is None:
        raise click.UsageError("name a scenario; --examples says where some are")
    try:
        read = load(scenarios.find(scenario))
    except ConfigurationError as error:
        for problem in error.problems:
            click.echo(f"podvisor simulate: {problem}", err=True)
        sys.exit(EXIT_CONFIGURATION)
    comparison = compare(read)
    click.echo(wire.encode(comparison) if as_json else text(comparison))
    if png is not None:
        try:
            draw(comparison, png)
        except (CannotDraw, OSError) as error:
            raise click.ClickException(str(error)) from error
