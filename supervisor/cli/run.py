"""`podvisor run`: the supervisor itself, PID 1 of the pod's container."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import click
import trio

from supervisor.ending import EXIT_CONFIGURATION

DEFAULT_CONFIG = Path("/etc/podvisor/podvisor.toml")
DEFAULT_UNITS = Path("/etc/podvisor/units")


class _Run(click.Command):
    """Whose options end where the COMMAND begins; who forgets to say where, or what, is told."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args and args.index("--") == len(args) - 1:
            raise click.UsageError("there is no COMMAND behind --; to run units leave it out", ctx)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = "an option of a COMMAND stands behind --: podvisor run -- COMMAND..."
            raise click.UsageError(f"{error.format_message().rstrip('.')}; {hint}", ctx) from None


@click.command("run", cls=_Run, context_settings={"ignore_unknown_options": False})
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="PODVISOR_CONFIG",
    help=f"Settings; {DEFAULT_CONFIG} if that is there.  [env: PODVISOR_CONFIG]",
)
@click.option(
    "--units",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Unit files; may be repeated: later ones replace files of the same name.  [default: {DEFAULT_UNITS}]",
)
@click.option(
    "--socket",
    "socket_path",
    type=click.Path(path_type=Path),
    metavar="PATH",
    envvar="PODVISOR_SOCKET",
    help="The control socket.  [env: PODVISOR_SOCKET]  [default: supervisor.socket of the settings]",
)
@click.option(
    "--rewrite",
    multiple=True,
    metavar="SIGNAL:SIGNAL",
    help="With a COMMAND: pass the first signal on as the second, 0 for not at all; may be repeated.",
)
@click.option(
    "--success-exit-status",
    "successes",
    multiple=True,
    type=click.IntRange(0, 255),
    metavar="CODE",
    help="With a COMMAND: exit 0 where it would be CODE, 143 for the end by SIGTERM; may be repeated.",
)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.pass_obj
def command(
    blocked_signals: frozenset[int] | None,
    config: Path | None,
    directories: tuple[Path, ...],
    socket_path: Path | None,
    rewrite: tuple[str, ...],
    successes: tuple[int, ...],
    argv: tuple[str, ...],
) -> None:
    """Run the units of this pod, or one COMMAND.

    A COMMAND is run as tini would: signals reach it, orphans are reaped, its exit status is ours.

    Exits 0 when asked to stop, 1 if a port, the socket or the state directory is taken, 78 on wrong unit files or
    settings, 255 when this container must be restarted.

    \b
    Example: podvisor run --config podvisor.toml --units units
    Example: podvisor run -- llama-server -m model.gguf
    Example: podvisor run --rewrite SIGTERM:SIGINT -- python3 serve.py
    """
    _refuse_to_share_with_supervisord()
    _hold_standard_streams()
    if argv:
        if directories:
            raise click.UsageError("--units and a command exclude each other")
        if Path(argv[0]).is_dir():
            raise click.UsageError(f"{argv[0]} is a directory; unit files are named by --units DIR")
        _end(_run_command(argv, blocked_signals or frozenset(), rewrite, frozenset(successes)))
    if rewrite or successes:
        raise click.UsageError(
            "--rewrite and --success-exit-status are for a COMMAND; units have KillSignal and SuccessExitStatus"
        )
    from supervisor.configuration import Options
    from supervisor.daemon import run

    options = Options(config or _if_there(DEFAULT_CONFIG), directories or (DEFAULT_UNITS,), socket_path)
    exit_code = run(options, os.environ)
    if exit_code == EXIT_CONFIGURATION and not directories:
        click.echo(f"podvisor: no --units was given, so the unit files were looked for in {DEFAULT_UNITS}", err=True)
    _end(exit_code)


def _run_command(
    argv: tuple[str, ...], blocked_signals: frozenset[int], rewrite: tuple[str, ...], successes: frozenset[int]
) -> int:
    from supervisor.command_mode import CommandLine, run_command
    from supervisor.command_signals import parse_rewrites

    try:
        rewrites = parse_rewrites(rewrite)
    except ValueError as error:
        raise click.UsageError(f"--rewrite: {error}") from None
    return trio.run(run_command, CommandLine(argv, blocked_signals, rewrites, successes))


def _hold_standard_streams() -> None:
    """Were one closed, the next descriptor to be opened would be taken for it, and be written to."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number is free: this one


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None


def _refuse_to_share_with_supervisord() -> None:
    """Both distributions install a package called `supervisor`: one overwrites the other's files (design 1)."""
    if (Path(__file__).parent.parent / "supervisord.py").exists():
        click.echo(
            "podvisor: supervisord is installed in the same Python environment and both have a package `supervisor`; "
            "install podvisor in an environment of its own: `uv tool install podvisor` or `pipx install podvisor`",
            err=True,
        )
        sys.exit(EXIT_CONFIGURATION)


def _end(exit_code: int) -> None:
    """Leave now: threads that hang in a driver must not keep PID 1 alive, and lost words cost no exit code."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            if stream is not None:
                stream.flush()
    os._exit(exit_code)
