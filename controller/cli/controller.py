"""`podvisor controller`: the program that coordinates the supervisors of multi-pod instances."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click
import trio

from controller.app import main
from controller.settings import Settings, load
from supervisor.settings_file import ConfigurationError
from supervisor.shared import logs
from supervisor.shared.listening import CannotListen
from supervisor.shared.tls import TlsError
from supervisor.shared.tokens import TokenError

DEFAULT_CONFIG = Path("/etc/podvisor/podvisor.toml")
EXIT_FAILED = 1
"""A port is taken, or cannot be bound."""
EXIT_INTERNAL = 70
"""A bug: the trace is in the log."""
EXIT_CONFIGURATION = 78
"""Bad configuration, or a token file that cannot be read: every problem is on stderr."""

log = logging.getLogger(__name__)


@click.command("controller")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="PODVISOR_CONFIG",
    help=f"podvisor.toml; {DEFAULT_CONFIG} if that is there.  [env: PODVISOR_CONFIG]",
)
def command(config: Path | None) -> None:
    """Run the controller until SIGTERM; exits 78 on a wrong configuration and 1 if a port is taken.

    \b
    Example: podvisor controller --config podvisor.toml
    """
    if config is None and DEFAULT_CONFIG.exists():
        config = DEFAULT_CONFIG
    try:
        settings = load(config, os.environ)
    except ConfigurationError as error:
        for problem in error.problems:
            click.echo(f"podvisor controller: {problem}", err=True)
        sys.exit(EXIT_CONFIGURATION)
    sys.exit(_run(settings))


def _run(settings: Settings) -> int:
    logs.configure(settings.controller.log_level, settings.controller.log_format)
    try:
        trio.run(main, settings)
    except CannotListen as error:
        log.error("%s", error)
        return EXIT_FAILED
    except (TlsError, TokenError) as error:
        log.error("%s", error)
        return EXIT_CONFIGURATION
    except Exception:
        # The last thing before the process ends, so that the trace is a log line as all others.
        log.critical("the controller failed", exc_info=True)
        return EXIT_INTERNAL
    return 0
