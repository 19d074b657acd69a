"""A whole supervisord.conf, includes and all -> drafts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from supervisor.convert.drafts import Draft
from supervisor.convert.references import INSTANCE, References
from supervisor.convert.remarks import Place, Remark, Unconvertible, changed, lost
from supervisor.convert.supervisord_expansion import Expansions, formatted, specs_of_process_number
from supervisor.convert.supervisord_file import Section, Setting
from supervisor.convert.supervisord_program import Program

DEFAULT_PRIORITY = 999
MOST_PROCESSES = 1000
_NAMES_ONLY = frozenset({"process_name", "numprocs", "numprocs_start", "priority"})

_NO_UNIT: Mapping[str, str] = {
    "eventlistener": "it speaks supervisord's event protocol on its standard input, and nothing here does",
    "fcgi-program": "it is given a listening socket as its standard input: let the program listen itself",
    "unix_http_server": "podvisor has a socket of its own: supervisor.socket in podvisor.toml",
    "inet_http_server": "podvisor's API is on its socket; its own ports are in podvisor.toml",
    "supervisorctl": "the command is `podvisor` itself; it finds the socket by PODVISOR_SOCKET or --socket",
    "rpcinterface": "there is no XML-RPC; the operations API is JSON over HTTP on the socket",
    "ctlplugin": "there is no supervisorctl to plug into",
}
_SUPERVISORD: Mapping[str, str] = {
    "logfile": "podvisor's own log goes to standard error",
    "logfile_maxbytes": "podvisor's own log goes to standard error",
    "logfile_backups": "podvisor's own log goes to standard error",
    "loglevel": "supervisor.log_level in podvisor.toml",
    "pidfile": "`podvisor status --json` tells the pid",
    "nodaemon": "podvisor never leaves the foreground",
    "silent": "supervisor.log_level in podvisor.toml",
    "minfds": "nothing raises the supervisor's own limits; LimitNOFILE in a unit sets the unit's",
    "minprocs": "nothing raises the supervisor's own limits; LimitNPROC in a unit sets the unit's",
    "user": "podvisor stays who it was started as; User in each unit says who the unit is",
    "childlogdir": "lines go to the container's output unless StandardOutput names a file",
    "strip_ansi": "lines are passed on as they are",
    "nocleanup": "there are no log files that were named automatically",
    "identifier": "there is no XML-RPC that would tell it",
}
_FOR_ALL = ("environment", "umask", "directory")
"""Keys of [supervisord] that its children inherit."""


class Configuration(msgspec.Struct, frozen=True):
    """All files of one supervisord.conf together."""

    here: Path
    """The directory of the main file."""
    sections: Mapping[str, Section]


def convert_supervisord(configuration: Configuration) -> tuple[list[Draft], list[Remark]]:
    remarks: list[Remark] = [*_of_every_program(configuration)]
    drafts: list[Draft] = []
    priorities: dict[str, int] = {}
    groups = _groups(configuration.sections)
    for section in configuration.sections.values():
        kind, colon, name = section.name.partition(":")
        if kind == "program" and colon:
            made = [*_program(section, name.strip(), groups.get(name.strip()), configuration, remarks)]
            drafts += made
            priorities |= {draft.name: _priority(section, draft) for draft in made}
        elif kind == "supervisord":
            remarks += _of_supervisord(section)
        elif kind == "group":
            message = "there are no groups: its units are started and stopped by their own names"
            remarks.append(lost(section.place, message))
        elif kind != "include":
            remarks.append(lost(section.place, _NO_UNIT.get(kind, "supervisord knows no such section")))
    _order([draft for draft in drafts if draft.enabled], priorities)
    return drafts, remarks


def _of_every_program(configuration: Configuration) -> Iterator[Remark]:
    programs = [section for section in configuration.sections.values() if section.name.startswith("program:")]
    if not programs:
        return
    place = Place(programs[0].place.path, None, "")
    yield changed(place, "a unit gets few of the supervisor's variables (PATH, LANG, TZ, HOME, POD_…):"
                         " name others in PassEnvironment")  # fmt: skip
    yield changed(place, "whatever a program leaves running is ended with it, also without stopasgroup and killasgroup")


def _groups(sections: Mapping[str, Section]) -> dict[str, str]:
    """Program -> group."""
    found: dict[str, str] = {}
    for section in sections.values():
        kind, _, group = section.name.partition(":")
        programs = section.settings.get("programs")
        if kind == "group" and programs is not None:
            found |= {program.strip(): group for program in programs.value.split(",")}
    return found


def _program(
    section: Section, name: str, group: str | None, configuration: Configuration, remarks: list[Remark]
) -> Iterator[Draft]:
    """One draft, a template for several processes, or one for each if they differ by more than their name."""
    try:
        count, first = _count(section, "numprocs", 1), _count(section, "numprocs_start", 0)
        if not 1 <= count <= MOST_PROCESSES:
            raise Unconvertible(f"numprocs: found {count}, expected 1 to {MOST_PROCESSES}")
    except Unconvertible as error:
        remarks.append(lost(section.place, str(error)))
        return
    references = References()
    known: dict[str, str | int] = {
        "here": str(configuration.here), "program_name": name, "group_name": group or name, "numprocs": count,
    }  # fmt: skip
    settings = _with_inherited(section, configuration.sections)
    clean = _clean_name(name)
    numbers = range(first, first + count)
    specs = {spec for key, each in settings.items() if key not in _NAMES_ONLY
             for spec in specs_of_process_number(each.value)}  # fmt: skip
    named = specs or specs_of_process_number(settings["process_name"].value if "process_name" in settings else "")
    if count == 1 or len(specs) > 1:
        for number in numbers:
            draft = Draft(clean if count == 1 else f"{clean}-{number}", section.place)
            _fill(draft, settings, Expansions(references, known, partial(_numbered, number)))
            yield draft
        return
    spec = min(named, default="d")
    draft = Draft(f"{clean}@", section.place, instances=tuple(formatted(spec, number) for number in numbers))
    _fill(draft, settings, Expansions(references, known, lambda _: references.mark(INSTANCE)))
    yield draft


def _numbered(number: int, spec: str) -> str:
    return formatted(spec, number)


def _fill(draft: Draft, settings: Mapping[str, Setting], expansions: Expansions) -> None:
    Program(draft, settings, expansions).convert()
    written = settings.get("process_name")
    if written is not None and written.value.replace("%(program_name)s", "").strip("_-:.") not in (
        "", "%(process_num)d", "%(process_num)s", "%(process_num)02d",
    ):  # fmt: skip
        draft.remarks.append(changed(written.place, f"the unit is called {draft.name}"))
    program = expansions.known["program_name"]
    if draft.name.partition("@")[0].removesuffix("-") != program and _clean_name(str(program)) != program:
        draft.remarks.append(changed(draft.place, f"the name has characters that a unit's may not: {draft.name}"))


def _clean_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_:.-]", "-", name)[:48] or "-"


def _with_inherited(section: Section, sections: Mapping[str, Section]) -> dict[str, Setting]:
    """What [supervisord] says of all its children comes first; a program's own variables come on top of it."""
    above = sections["supervisord"].settings if "supervisord" in sections else {}
    inherited = {key: above[key] for key in _FOR_ALL if key in above}
    own = dict(section.settings)
    if "environment" in inherited and "environment" in own:
        both = f"{inherited['environment'].value.rstrip().rstrip(',')},{own['environment'].value}"
        own["environment"] = Setting(both, own["environment"].place)
    return inherited | own


def _count(section: Section, key: str, default: int) -> int:
    setting = section.settings.get(key)
    if setting is None:
        return default
    if not (setting.value.isascii() and setting.value.isdecimal()):
        raise Unconvertible(f"{key}: found {setting.value!r}, expected a whole number")
    return int(setting.value)


def _of_supervisord(section: Section) -> Iterator[Remark]:
    for key, setting in section.settings.items():
        if key not in _FOR_ALL:
            yield lost(setting.place, _SUPERVISORD.get(key, "supervisord knows no such key"))


def _priority(section: Section, draft: Draft) -> int:
    setting = section.settings.get("priority")
    if setting is None:
        return DEFAULT_PRIORITY
    try:
        return int(setting.value)
    except ValueError:
        draft.remarks.append(lost(setting.place, f"found {setting.value!r}, expected a number"))
        return DEFAULT_PRIORITY


def _order(drafts: list[Draft], priorities: Mapping[str, int]) -> None:
    """Lower priorities are started first and stopped last: each unit comes after those of the next lower one."""
    steps = sorted({priorities[draft.name] for draft in drafts})
    for draft in drafts:
        step = steps.index(priorities[draft.name])
        if step == 0:
            continue
        earlier = [name for each in drafts if priorities[each.name] == steps[step - 1] for name in _unit_names(each)]
        draft.set("Unit", "After", earlier)
        message = "the priorities became After, which also waits until those units have started"
        draft.remarks.append(changed(draft.place, message))


def _unit_names(draft: Draft) -> list[str]:
    return [draft.name + instance for instance in draft.instances] or [draft.name]
