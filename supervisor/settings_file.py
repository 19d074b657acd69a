"""How a settings file is read: TOML or JSON, overrides from the environment, every mistake located.

Which keys there are is not decided here: a program describes its sections as frozen dataclasses whose fields
are made by `setting()`, so that name, type, default, check and documentation of a key stand in one place::

    @dataclass(frozen=True, slots=True)
    class ControllerSection:
        port: int = setting(integer(0, 65535), 1026, "TCP port of the API")

    values = read_sections(path, os.environ, {"controller": keys_of(ControllerSection)}, foreign=…)
    section = build(ControllerSection, values["controller"])

One file may serve both programs, so each names the other's sections and keys as `foreign`. Beside
`supervisor.wire` and `supervisor.shared` this module is all of `supervisor` that `controller` imports.

Converters for fields: `boolean`, `integer(min, max)`, `number(min, max)` (a plain number),
`duration(min, max)` (seconds or "1min 30s"), `text`, `word` (not empty), `text_list`, `one_of(…)`, `port`,
`url`, `url_list`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from supervisor.unit.errors import ConfigurationError, Problem
from supervisor.unit.quantities import duration
from supervisor.unit.suggest import unknown
from supervisor.unit.toml_lines import Document, SyntaxProblem, read_json, read_toml
from supervisor.unit.values import (
    Mismatch,
    UnexpectedValue,
    boolean,
    integer,
    list_of,
    mapped,
    matching,
    number,
    one_of,
    port,
    text,
    text_list,
    word,
)

__all__ = [
    "ConfigurationError", "Key", "Mistake", "Problem", "Sections", "boolean", "build", "duration", "integer",
    "keys_of", "number", "one_of", "port", "read_sections", "setting", "text", "text_list", "tls_mistakes", "url",
    "url_list", "word",
]  # fmt: skip

T = TypeVar("T")

PREFIX = "PODVISOR_"
ENVIRONMENT = Path("environment")
"""Stands for the file in a problem of an environment variable."""


@dataclass(frozen=True, slots=True)
class Key:
    """One setting."""

    name: str
    convert: Callable[[object], object]
    """Raises UnexpectedValue."""
    default: object
    doc: str


@dataclass(frozen=True, slots=True)
class Mistake:
    """Values that are right each by itself but do not fit together."""

    section: str
    key: str
    message: str


def tls_mistakes(cert: str | None, key: str | None, client_ca: str | None) -> Iterator[Mistake]:
    """Of both programs: a certificate without a CA would let everybody in, a CA without a certificate nobody."""
    values = {"cert": cert, "key": key, "client_ca": client_ca}
    missing = [name for name, value in values.items() if not value]
    if missing and len(missing) < len(values):
        yield Mistake("tls", missing[0], f"must be set with the other two; missing: {', '.join(missing)}")


def _with_a_port_that_is_one(written: str) -> str:
    try:
        urlsplit(written).port  # noqa: B018  # reading it checks it
    except ValueError:
        raise Mismatch from None
    return written.rstrip("/")


url = mapped(matching(r"https?://[^\s/]+/?", 'a URL such as "http://controller:1026"'), _with_a_port_that_is_one)
url_list = list_of(url, 'one or more URLs such as "http://controller:1026"')

Foreign = Mapping[str, frozenset[str] | None]
"""The other program's sections (None: all of it) and keys."""
Sections = dict[str, dict[str, object]]
"""section -> key -> value; every key is present."""


def setting(convert: Callable[[object], T], default: T, doc: str) -> T:
    """A dataclass field that is a setting (the type is that of the field, as with `dataclasses.field`)."""
    field: T = dataclasses.field(default=default, metadata={"convert": convert, "doc": doc})
    return field


def keys_of(section: type) -> dict[str, Key]:
    """The keys that a dataclass of `setting()` fields describes."""
    return {
        field.name: Key(field.name, field.metadata["convert"], field.default, field.metadata["doc"])
        for field in dataclasses.fields(section)
    }


def build(section: Callable[..., T], values: Mapping[str, object]) -> T:
    """The dataclass from what `read_sections` found for it."""
    return section(**values)


def read_sections(
    path: Path | None,
    environment: Mapping[str, str],
    sections: Mapping[str, Mapping[str, Key]],
    *,
    foreign: Foreign,
    relations: Callable[[Sections], Iterable[Mistake]] = lambda _: (),
) -> Sections:
    """Defaults, then the file, then `PODVISOR_SECTION__KEY` variables.

    `path` may end in `.json`, everything else is TOML; None reads no file. `foreign` is the other program's
    and left alone. `relations` judges the values together and is asked only when each is right by itself.
    Raise ConfigurationError with all problems.
    """
    values: Sections = {
        section: {name: key.default for name, key in keys.items()} for section, keys in sections.items()
    }
    problems: list[Problem] = []
    entries = [*_file_entries(path, problems), *_environment_entries(environment)]
    for entry in entries:
        try:
            key = _key(entry, sections, foreign)
            if key is not None:
                values[entry.section][key.name] = _convert(key, entry.readings)
        except UnexpectedValue as error:
            problems.append(entry.problem(str(error)))
    if not problems:
        problems += [_locate(mistake, path, entries) for mistake in relations(values)]
    if problems:
        raise ConfigurationError(problems)
    return values


@dataclass(frozen=True, slots=True)
class _Entry:
    """One thing that somebody wrote, and where."""

    source: Path
    line: int | None
    place: str
    section: str
    name: str | None
    """None: the section itself."""
    readings: tuple[object, ...]
    """What it may mean, the likeliest first."""

    def problem(self, message: str) -> Problem:
        return Problem(self.source, self.line, self.place, message)


def _file_entries(path: Path | None, problems: list[Problem]) -> Iterator[_Entry]:
    if path is None:
        return
    document = _read(path, problems)
    for section, content in document.data.items():
        yield _Entry(path, document.line_of((section,)), section, section, None, (content,))
        for name, found in content.items() if isinstance(content, dict) else ():
            yield _Entry(path, document.line_of((section, name)), f"{section}.{name}", section, name, (found,))


def _read(path: Path, problems: list[Problem]) -> Document:
    try:
        written = path.read_text(encoding="utf-8")
        return read_json(written, path) if path.suffix == ".json" else read_toml(written, path)
    except OSError as error:
        problems.append(Problem(path, None, "", f"cannot read: {error.strerror}"))
    except UnicodeDecodeError as error:
        problems.append(Problem(path, None, "", f"cannot read: not UTF-8 at byte {error.start}"))
    except SyntaxProblem as error:
        problems.append(error.problem)
    return Document({}, {})


def _environment_entries(environment: Mapping[str, str]) -> Iterator[_Entry]:
    for variable, written in sorted(environment.items()):
        section, _, name = variable.removeprefix(PREFIX).lower().partition("__")
        if variable.startswith(PREFIX) and section and name:
            yield _Entry(ENVIRONMENT, None, variable, section, None, ({},))
            yield _Entry(ENVIRONMENT, None, variable, section, name, _readings(written))


def _readings(written: str) -> tuple[object, ...]:
    """A variable has no types: `8` may be a number or a name."""
    try:
        return read_toml(f"value = {written}", ENVIRONMENT).data["value"], written
    except SyntaxProblem:
        return (written,)


def _key(entry: _Entry, sections: Mapping[str, Mapping[str, Key]], foreign: Foreign) -> Key | None:
    """The key that the entry sets; None if it sets none of ours. Raise UnexpectedValue if it is nobody's."""
    keys, foreign_keys = sections.get(entry.section), foreign.get(entry.section) or frozenset()
    if entry.name is None:
        if keys is None and entry.section not in foreign:
            raise UnexpectedValue(unknown("section", entry.section, {*sections, *foreign}))
        if keys is not None and not isinstance(entry.readings[0], dict):
            raise UnexpectedValue(f"expected a table: [{entry.section}]")
        return None
    if keys is None or entry.name in foreign_keys - keys.keys():
        return None
    if entry.name not in keys:
        raise UnexpectedValue(unknown("key", entry.name, {*keys, *foreign_keys}))
    return keys[entry.name]


def _convert(key: Key, readings: Iterable[object]) -> object:
    errors = []
    for found in readings:
        try:
            return key.convert(found)
        except UnexpectedValue as error:
            errors.append(error)
    raise errors[0]


def located(mistake: Mistake, path: Path | None, environment: Mapping[str, str]) -> Problem:
    """Of values that were read before and are judged with something else."""
    return _locate(mistake, path, [*_file_entries(path, []), *_environment_entries(environment)])


def _locate(mistake: Mistake, path: Path | None, entries: Sequence[_Entry]) -> Problem:
    """At the last place that set the key; at the file when its default is part of the trouble."""
    for entry in reversed(entries):
        if (entry.section, entry.name) == (mistake.section, mistake.key):
            return entry.problem(mistake.message)
    return Problem(path or ENVIRONMENT, None, f"{mistake.section}.{mistake.key}", mistake.message)
