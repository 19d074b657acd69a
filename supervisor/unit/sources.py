"""Which files make which unit: the directories of `--units`, layered, with drop-ins and templates.

This is the only place of the package that reads files; what they say is judged in `parse.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from supervisor.unit.errors import Problem
from supervisor.unit.layers import Layered, layer
from supervisor.unit.toml_lines import SyntaxProblem, read_toml


class Sources(msgspec.Struct, frozen=True):
    """Documents by the name of the unit, or of the template (`exporter@`)."""

    files: Mapping[str, Layered]
    drop_ins: Mapping[str, Sequence[Layered]]
    """In the order in which they are laid over the file."""


def read_sources(directories: Sequence[Path]) -> tuple[Sources, list[Problem]]:
    """Read every unit file once. A later directory's file of the same name replaces an earlier one's."""
    problems: list[Problem] = []
    paths: dict[str, Path] = {}
    drop_in_paths: dict[str, dict[str, Path]] = {}
    for directory in directories:
        listed = _listing(directory, problems)
        paths |= {path.stem: path for path in listed if path.suffix == ".toml"}
        for folder in (path for path in listed if path.name.endswith(".toml.d")):
            named = drop_in_paths.setdefault(folder.name.removesuffix(".toml.d"), {})
            named |= {path.name: path for path in _listing(folder, problems) if path.suffix == ".toml"}
    files = {name: document for name, path in paths.items() for document in _read(path, problems)}
    drop_ins = {
        name: [document for _, path in sorted(named.items()) for document in _read(path, problems)]
        for name, named in drop_in_paths.items()
    }
    return Sources(files, drop_ins), problems


def _listing(directory: Path, problems: list[Problem]) -> list[Path]:
    """Without hidden names: a mounted ConfigMap holds its own machinery under `..data`."""
    try:
        return sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    except OSError as error:
        problems.append(Problem(directory, None, "", f"cannot read the directory: {error.strerror}"))
        return []


def _read(path: Path, problems: list[Problem]) -> Iterator[Layered]:
    try:
        yield layer(path, read_toml(path.read_text(encoding="utf-8"), path))
    except OSError as error:
        problems.append(Problem(path, None, "", f"cannot read: {error.strerror}"))
    except UnicodeDecodeError as error:
        problems.append(Problem(path, None, "", f"cannot read: not UTF-8 at byte {error.start}"))
    except SyntaxProblem as error:
        problems.append(error.problem)
