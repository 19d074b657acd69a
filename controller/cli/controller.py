"""`podvisor controller`: the program that coordinates the supervisors of multi-pod instances."""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
from pathlib import Path

import click
import trio

from controller.app import main
from controller.kubernetes.service_account import NotInACluster
from controller.settings import Settings, load
from controller.store.base import CannotOpen
from supervisor.settings_file import ConfigurationError
from supervisor.shared import logs
from supervisor.shared.causes import causes, log_causes
from supervisor.shared.listening import CannotListen
from supervisor.shared.tls import TlsError
from supervisor.shared.tokens import TokenError

DEFAULT_CONFIG = Path("/etc/podvisor/podvisor.toml")
COLLECT_AFTER = (20_000, 10, 10)
EXIT_FAILED = 1
"""A port is taken, or cannot be bound."""
EXIT_INTERNAL = 70
"""A bug: the trace is in the log."""
EXIT_CONFIGURATION = 78
"""Bad configuration, or a token file or a journal that cannot be used: every problem is on stderr."""

log = logging.getLogger(__name__)


@click.command("controller", short_help="Run the controller until SIGTERM.")
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


def _take_all_descriptors() -> None:
    """Each supervisor keeps a connection, and the soft limit is often 1,024: it is low for the sake of select(2)."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _seldom_collect() -> None:
    """A full collection stops the loop for 80 ms where thousands of supervisors are known, and heartbeats alone, whose
    objects need none, brought one on every few seconds: what is loaded by now is never looked at, the rest seldom."""
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def _run(settings: Settings) -> int:
    logs.configure(settings.controller.log_level, settings.controller.log_format)
    _take_all_descriptors()
    _seldom_collect()
    try:
        trio.run(_main, settings)
    except CannotListen as error:
        log.error("%s", error)
        return EXIT_FAILED
    except (TlsError, TokenError, NotInACluster, CannotOpen) as error:
        log.error("%s", error)
        return EXIT_CONFIGURATION
    except Exception as error:  # noqa: BLE001 - the last frame: say what happened, in log lines as all others
        log_causes(log, "internal error: this is a bug of podvisor; the controller ends: %r", error)
        return EXIT_INTERNAL
    return 0


async def _main(settings: Settings) -> None:
    """Raises what `main` does, and CannotOpen without the groups of the nurseries through which it came."""
    try:
        await main(settings)
    except BaseExceptionGroup as group:
        unusable, others = group.split(CannotOpen)
        if unusable is None or others is not None:
            raise
        raise next(causes(unusable)) from None
