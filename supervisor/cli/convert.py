"""`podvisor convert`: supervisord.conf and systemd .service files -> unit files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from supervisor.convert.conversion import Conversion, convert
from supervisor.convert.drafts import UnitFile
from supervisor.convert.remarks import Kind, Remark
from supervisor.convert.sources import read_foreign
from supervisor.convert.supervisord import Configuration
from supervisor.convert.systemd import ServiceFile
from supervisor.ending import EXIT_CONFIGURATION
from supervisor.unit.errors import ConfigurationError, Problem

EXIT_NOTHING = 1


@click.command("convert", short_help="Turn supervisord.conf and .service files into unit files.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--output",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the unit files there; without it they are shown.",
)
@click.option("--force", is_flag=True, help="Overwrite unit files that are there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def command(files: tuple[Path, ...], directory: Path | None, *, force: bool, as_json: bool) -> None:
    """Turn supervisord.conf and systemd .service files into unit files.

    Says line by line what could not be carried over and why, on standard error and at the top of each file. What is
    written always passes `podvisor verify` as far as the files alone can tell.

    Exits 0 if there are unit files, 1 if nothing could be converted or a file is in the way, 78 if a FILE cannot be
    read.

    \b
    Example: podvisor convert /etc/supervisor/supervisord.conf --output units
    Example: podvisor convert /etc/systemd/system/web.service
    """
    try:
        foreign = _read(files)
    except ConfigurationError as error:
        _complain(error.problems, as_json)
        sys.exit(EXIT_CONFIGURATION)
    conversion = convert(foreign, _existing(directory))
    in_the_way = [] if force or directory is None else _in_the_way(directory, conversion)
    if in_the_way:
        _complain(in_the_way, as_json)
        sys.exit(EXIT_NOTHING)
    if directory is not None:
        _write(directory, conversion.files)
    if as_json:
        click.echo(json.dumps(_as_json(conversion, directory)))
    else:
        _show(conversion, directory)
    sys.exit(0 if conversion.files else EXIT_NOTHING)


def _read(files: tuple[Path, ...]) -> list[Configuration | ServiceFile]:
    """Raise ConfigurationError with the problems of all files."""
    found: list[Configuration | ServiceFile] = []
    problems: list[Problem] = []
    for path in files:
        try:
            found.append(read_foreign(path))
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return found


def _existing(directory: Path | None) -> frozenset[str]:
    if directory is None or not directory.is_dir():
        return frozenset()
    return frozenset(path.stem for path in directory.glob("*.toml"))


def _in_the_way(directory: Path, conversion: Conversion) -> list[Problem]:
    message = "there is such a file: --force overwrites it"
    return [Problem(path, None, "", message) for each in conversion.files if (path := directory / each.name).exists()]


def _write(directory: Path, files: Iterable[UnitFile]) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for each in files:
            (directory / each.name).write_text(each.text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename}: {error.strerror}") from None


def _show(conversion: Conversion, directory: Path | None) -> None:
    for remark in conversion.remarks:
        click.echo(str(remark), err=True)
    for each in conversion.files:
        if directory is None:
            click.echo(f"# --- {each.name}\n{each.text}")
        else:
            click.echo(f"{directory / each.name}")
    lost = sum(remark.kind is Kind.LOST for remark in conversion.remarks)
    changed = len(conversion.remarks) - lost
    count = len(conversion.files)
    click.echo(f"{count} file{'s' if count != 1 else ''}; {lost} lost, {changed} changed", err=True)


def _complain(problems: Iterable[Problem], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"files": [], "remarks": [], "problems": [_problem(problem) for problem in problems]}))
        return
    for problem in problems:
        click.echo(f"podvisor: {problem}", err=True)


def _problem(problem: Problem) -> dict[str, object]:
    return {"path": str(problem.path), "line": problem.line, "key": problem.key, "message": problem.message}


def _as_json(conversion: Conversion, directory: Path | None) -> dict[str, object]:
    return {
        "files": [
            {"name": each.name, "path": str(directory / each.name) if directory else None, "text": each.text,
             "source": str(each.source.path), "line": each.source.line,
             "remarks": [_remark(remark) for remark in each.remarks]}
            for each in conversion.files
        ],
        "remarks": [_remark(remark) for remark in conversion.remarks],
        "problems": [],
    }  # fmt: skip


def _remark(remark: Remark) -> dict[str, object]:
    place = remark.place
    return {"kind": remark.kind, "path": str(place.path), "line": place.line, "key": place.key,
            "message": remark.message}  # fmt: skip
