"""Reads what is to be converted: a supervisord.conf with its includes, a .service file with its drop-ins."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from supervisor.convert.references import References
from supervisor.convert.remarks import Unconvertible
from supervisor.convert.supervisord import Configuration
from supervisor.convert.supervisord_expansion import Expansions
from supervisor.convert.supervisord_file import Section, parse_sections
from supervisor.convert.systemd import ServiceFile
from supervisor.convert.systemd_file import Assignment, parse_assignments
from supervisor.unit.errors import ConfigurationError, Problem

SERVICE = ".service"
_MOST_BYTES = 4_000_000


def read_foreign(path: Path) -> Configuration | ServiceFile:
    """Raise ConfigurationError."""
    text = _text(path)
    if path.suffix == SERVICE:
        return _service(path, text)
    if path.suffix in (".conf", ".ini") or re.search(r"^\[(supervisord|program:)", text, re.MULTILINE):
        return _configuration(path, text)
    message = "expected a supervisord.conf with [program:x], or a systemd unit file NAME.service"
    raise ConfigurationError([Problem(path, None, "", message)])


def _service(path: Path, text: str) -> ServiceFile:
    assignments, problems = parse_assignments(text, path)
    for drop_in in _drop_ins(path):
        more, mistakes = parse_assignments(_text(drop_in), drop_in)
        assignments += more
        problems += mistakes
    if problems:
        raise ConfigurationError(problems)
    return ServiceFile(path, tuple[Assignment, ...](assignments))


def _drop_ins(path: Path) -> Iterator[Path]:
    """Of a template the instances' too; files of the same name replace each other as in systemd.unit(5)."""
    named: dict[str, Path] = {}
    prefix, at, _ = path.stem.partition("@")
    for stem in dict.fromkeys([f"{prefix}{at}", path.stem]):
        folder = path.with_name(f"{stem}{SERVICE}.d")
        if folder.is_dir():
            named |= {each.name: each for each in folder.iterdir() if each.suffix == ".conf"}
    for _, drop_in in sorted(named.items()):
        yield drop_in


def _configuration(path: Path, text: str) -> Configuration:
    here = path.absolute().parent
    sections: dict[str, Section] = {}
    problems = [*parse_sections(text, path, sections)]
    for included in _included(here, sections.pop("include", None)):
        problems += parse_sections(_text(included), included, sections)
    if problems:
        raise ConfigurationError(problems)
    return Configuration(here, sections)


def _included(here: Path, section: Section | None) -> Iterator[Path]:
    """supervisord does not look for an [include] in a file that was included."""
    setting = section.settings.get("files") if section else None
    if setting is None:
        return
    expansions = Expansions(_FromEnvironment(), {"here": str(here)})
    try:
        patterns = expansions.expand(setting.value).split()
    except Unconvertible as error:
        place = setting.place
        raise ConfigurationError([Problem(place.path, place.line, place.key, str(error))]) from None
    for pattern in patterns:
        for found in sorted(glob.glob(os.path.join(here, pattern))):
            yield Path(found)


class _FromEnvironment(References):
    """The names of files are needed now."""

    def mark(self, written: str) -> str:
        name = written.removeprefix("${").removesuffix("}")
        if name not in os.environ:
            raise Unconvertible(f"{name} is not set in this environment")
        return os.environ[name]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError([Problem(path, None, "", f"cannot read: {error.strerror}")]) from None
    if len(data) > _MOST_BYTES:
        raise ConfigurationError([Problem(path, None, "", f"cannot read: more than {_MOST_BYTES} bytes")])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError([Problem(path, None, "", f"cannot read: not UTF-8 at byte {error.start}")]) from None
    if "\0" in text:
        raise ConfigurationError([Problem(path, None, "", "cannot read: it holds a NUL")])
    return text.replace("\r\n", "\n")
