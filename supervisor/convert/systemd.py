"""One systemd .service -> a draft, key by key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec

from supervisor.convert import systemd_keys as keys
from supervisor.convert.drafts import Draft
from supervisor.convert.references import References
from supervisor.convert.remarks import Place, Unconvertible, changed, lost
from supervisor.convert.systemd_commands import Commands
from supervisor.convert.systemd_file import Assignment, effective
from supervisor.convert.systemd_values import boolean, duration, seconds, whole
from supervisor.convert.systemd_words import Specifiers, assigned_words
from supervisor.unit.process_values import variable_name
from supervisor.unit.systemd_losses import why_lost
from supervisor.unit.values import Mismatch


class ServiceFile(msgspec.Struct, frozen=True):
    """A .service file with its drop-ins, in the order in which they are laid over it."""

    path: Path
    assignments: Sequence[Assignment]

    @property
    def unit(self) -> str:
        """`foo.service`."""
        return self.path.name


def unit_name(service: str) -> str:
    """Of ours: `foo` for `foo.service`, with no character that ours may not have."""
    stem = service.removesuffix(".service")
    return re.sub(r"[^A-Za-z0-9_:.@-]", "-", re.sub(r"\\x2d", "-", stem))[:64]


def convert_service(service: ServiceFile, known: AbstractSet[str]) -> Draft:
    """`known` are the names of all units of ours that there are or will be, this one's among them."""
    return _Conversion(service, known).draft()


class _Conversion:
    def __init__(self, service: ServiceFile, known: AbstractSet[str]) -> None:
        self._known = known
        self._draft = Draft(unit_name(service.unit), Place(service.path, None, ""))
        self._assignments = effective(service.assignments)
        self._references = References()
        self._specifiers = Specifiers(self._references, service.unit, str(service.path))
        self._last = {(each.section, each.key): each for each in self._assignments}

    def draft(self) -> Draft:
        if self._draft.name != self._specifiers.unit.removesuffix(".service"):
            message = f"the name has characters that a unit's may not: {self._draft.name}"
            self._draft.remarks.append(changed(self._draft.place, message))
        self._set("Service", "Type", "exec", self._draft.place)  # first in the file, whatever is written where
        for each in self._assignments:
            try:
                self._assignment(each)
            except Unconvertible as error:
                self._draft.remarks.append(lost(each.place, str(error)))
        Commands(self._draft, self._specifiers, self._static_variables()).convert(
            [each for each in self._assignments if each.section == "Service" and each.key in keys.COMMANDS]
        )
        self._defaults_of_systemd()
        return self._draft

    def _assignment(self, each: Assignment) -> None:
        section, key = each.section, keys.OLD_NAMES.get(each.key, each.key)
        if section.startswith("X-") or key.startswith("X-"):
            return
        if section == "Unit":
            self._of_unit(key, each)
        elif section == "Service":
            self._of_service(key, each)
        else:
            raise Unconvertible(_why_lost(f"{section}.{key}"))

    def _of_unit(self, key: str, each: Assignment) -> None:
        if key in keys.DEPENDENCIES:
            self._dependency(key, each)
        elif key == "Description":
            self._set("Unit", key, self._plain(each.value), each.place)
        elif key == "Documentation":
            self._extend("Unit", key, [self._plain(word) for word in each.value.split()], each.place)
        elif key in ("ConditionPathExists", "ConditionEnvironment"):
            self._condition(key, each)
        elif key in keys.START_LIMIT:
            self._start_limit(key, each)
        else:
            raise Unconvertible(_why_lost(f"Unit.{key}"))

    def _of_service(self, key: str, each: Assignment) -> None:
        own: Mapping[str, Callable[[Assignment], None]] = {
            "Type": self._type, "RestartSec": self._restart_sec, "KillMode": self._kill_mode,
            "TimeoutSec": self._timeout, "TimeoutStartSec": self._timeout, "TimeoutStopSec": self._timeout,
            "WatchdogSec": self._watchdog, "NotifyAccess": self._notify_access, "Environment": self._environment,
            "EnvironmentFile": self._environment_file, "WorkingDirectory": self._working_directory,
            "StandardOutput": self._output, "StandardError": self._output, "CPUAffinity": self._cpus,
            "IOSchedulingClass": self._io_class, "LoadCredential": self._credential,
        }  # fmt: skip
        place = each.place
        if key in keys.COMMANDS:
            return  # together, at the end
        if key in own:
            own[key](each)
        elif key in keys.START_LIMIT:
            self._start_limit(key, each)
        elif key in keys.AS_IT_IS or re.fullmatch(r"Limit[A-Z]+", key):
            self._set("Service", key, self._text(each.value), place)
        elif key in keys.BOOLEANS:
            self._set("Service", key, boolean(each.value), place)
        elif key in keys.NUMBERS:
            self._set("Service", key, whole(each.value), place)
        elif key in keys.DURATIONS:
            self._set("Service", key, duration(each.value), place)
        elif key in keys.STATUSES:
            self._extend_statuses(key, each)
        elif key in keys.NAMES:
            self._extend("Service", key, [self._text(word) for word in each.value.split()], place)
        else:
            raise Unconvertible(_why_lost(f"Service.{key}"))

    def _dependency(self, key: str, each: Assignment) -> None:
        names = []
        for word in each.value.split():
            name, _, kind = word.rpartition(".")
            ours = self._plain(unit_name(name)) if "%" not in word else self._plain(name)
            if kind != "service":
                self._draft.remarks.append(lost(each.place, f"{word}: there are only services here"))
            elif not self._is_known(ours):
                message = f"{word} is no unit here: convert it in the same call, or into the same directory before"
                self._draft.remarks.append(lost(each.place, message))
            else:
                names.append(ours)
        if key == "Requisite" and names:
            self._draft.remarks.append(changed(each.place, "became Requires: a unit that is required is started"))
            key = "Requires"
        if names:
            self._extend("Unit", key, names, each.place)

    def _is_known(self, name: str) -> bool:
        template = name.partition("@")[0] + "@"
        return name in self._known or ("@" in name and name != template and template in self._known)

    def _condition(self, key: str, each: Assignment) -> None:
        if each.value.startswith("|"):
            raise Unconvertible("conditions of which one is enough (|) are not there: all must hold")
        text = self._text(each.value) if key == "ConditionPathExists" else self._plain(each.value)
        self._extend("Unit", key, [text], each.place)

    def _start_limit(self, key: str, each: Assignment) -> None:
        if key == "StartLimitBurst":
            self._set("Service", key, whole(each.value), each.place)
        elif key == "StartLimitAction":
            if each.value.removesuffix("-force") not in ("none", "exit"):
                raise Unconvertible("a unit may end the supervisor (exit), never the machine")
            self._set("Service", key, each.value.removesuffix("-force"), each.place)
        elif seconds(each.value) == 0:
            self._set("Service", "StartLimitBurst", 0, each.place)
        else:
            self._set("Service", key, duration(each.value), each.place)

    def _type(self, each: Assignment) -> None:
        if each.value not in keys.TYPES:
            raise Unconvertible(f"there is no Type {each.value!r}")
        ours, remark = keys.TYPES[each.value]
        self._set("Service", "Type", ours, each.place)
        if each.value == "forking":
            self._set("Service", "ExitType", "cgroup", each.place)
        if remark:
            self._draft.remarks.append(changed(each.place, remark))

    def _restart_sec(self, each: Assignment) -> None:
        """systemd waits so long each time; here the first restart is at once, and RestartSteps lead to the maximum."""
        written = duration(each.value)
        self._set("Service", "RestartSec", written, each.place)
        if ("Service", "RestartMaxDelaySec") not in self._last:
            self._set("Service", "RestartMaxDelaySec", written, each.place)
            self._set("Service", "RestartSteps", 1, each.place)
        message = "a first restart after some time in health is immediate, from the second on it is so long"
        self._draft.remarks.append(changed(each.place, message))

    def _timeout(self, each: Assignment) -> None:
        value = "infinity" if seconds(each.value) == 0 else duration(each.value)
        for key in ("TimeoutStartSec", "TimeoutStopSec") if each.key == "TimeoutSec" else (each.key,):
            self._set("Service", key, value, each.place)

    def _watchdog(self, each: Assignment) -> None:
        if seconds(each.value) > 0:
            self._set("Service", "WatchdogSec", duration(each.value), each.place)

    def _notify_access(self, each: Assignment) -> None:
        if each.value not in keys.NOTIFY_ACCESS:
            raise Unconvertible("who is given a NOTIFY_SOCKET is listened to: main or all")
        self._set("Service", "NotifyAccess", keys.NOTIFY_ACCESS[each.value], each.place)

    def _kill_mode(self, each: Assignment) -> None:
        if each.value == "none":
            raise Unconvertible("a unit that was stopped is always gone, whole")
        self._set("Service", "KillMode", each.value, each.place)

    def _environment(self, each: Assignment) -> None:
        variables: dict[str, str] = {}
        try:
            for word in assigned_words(each.value):
                variables |= self._variable(self._specifiers.expand(word.text), each)
        finally:  # what came before an error counts
            before = self._draft.tables.get("Service", {}).get("Environment", {})
            assert isinstance(before, dict)
            kept = {name: value for name, value in before.items() if name not in variables}
            if variables:
                self._set("Service", "Environment", kept | variables, each.place)

    def _variable(self, text: str, each: Assignment) -> dict[str, str]:
        name, equals, value = text.partition("=")
        try:
            variable_name.read(name)
        except Mismatch:
            equals = ""
        if not equals:
            self._draft.remarks.append(lost(each.place, f"{text!r} is not NAME=value"))
            return {}
        return {name: self._written(value)}

    def _environment_file(self, each: Assignment) -> None:
        if re.search(r"[*?\[]", each.value):
            raise Unconvertible("a file is named, not a pattern for several")
        self._extend("Service", "EnvironmentFile", [self._text(each.value)], each.place)

    def _working_directory(self, each: Assignment) -> None:
        if each.value.removeprefix("-") == "~":
            raise Unconvertible("the user's home is not known here: write its path")
        if each.value.startswith("-"):
            self._draft.remarks.append(changed(each.place, "the directory has to be there"))
        self._set("Service", "WorkingDirectory", self._text(each.value.removeprefix("-")), each.place)

    def _output(self, each: Assignment) -> None:
        kind, colon, path = each.value.partition(":")
        if kind == "null":
            self._set("Service", each.key, "null", each.place)
        elif colon and kind in ("file", "append", "truncate"):
            self._set("Service", each.key, f"file:{self._text(path)}", each.place)
            self._draft.remarks.append(changed(each.place, "the file is appended to and rotated (LogRotateSize)"))
            if each.key == "StandardOutput" and ("Service", "StandardError") not in self._last:
                return  # there, too, the one follows the other
        elif kind not in ("journal", "inherit", "journal+console", "syslog", "kmsg", "tty"):
            raise Unconvertible(f"there is no {kind} to write to")
        elif each.key == "StandardError" and kind != "inherit":
            self._set("Service", each.key, "prefix", each.place)  # else it would follow StandardOutput into its file

    def _cpus(self, each: Assignment) -> None:
        before = self._draft.tables.get("Service", {}).get("CPUAffinity", "")
        self._set("Service", "CPUAffinity", f"{before} {each.value}".strip(), each.place)

    def _io_class(self, each: Assignment) -> None:
        if each.value not in ("0", "none"):
            self._set("Service", each.key, keys.IO_CLASSES.get(each.value, each.value), each.place)

    def _credential(self, each: Assignment) -> None:
        self._extend("Service", each.key, [self._text(each.value)], each.place)

    def _extend_statuses(self, key: str, each: Assignment) -> None:
        before = self._draft.tables.get("Service", {}).get(key, [])
        assert isinstance(before, list)
        added: list[int | str] = [
            int(word) if word.isascii() and word.isdecimal() else word for word in each.value.split()
        ]
        self._draft.set("Service", key, [*before, *added], each.place)

    def _defaults_of_systemd(self) -> None:
        """Where systemd's default would surprise under ours: what nobody wrote has to stay as it was."""
        draft = self._draft
        if not draft.has("Service", "Restart"):
            draft.set("Service", "Restart", "no")
        if not draft.has("Service", "KillMode"):
            draft.set("Service", "KillMode", "control-group")
        restarts_after_success = draft.tables["Service"]["Restart"] in ("always", "on-success")
        if restarts_after_success and not any(draft.has("Service", key) for key in keys.START_LIMIT):
            draft.set("Service", "StartLimitIntervalSec", "10s")

    def _static_variables(self) -> Mapping[str, str] | None:
        """What the unit's own Environment says; None if a file may say otherwise."""
        service = self._draft.tables.get("Service", {})
        variables = service.get("Environment", {})
        assert isinstance(variables, dict)
        return None if "EnvironmentFile" in service or "PassEnvironment" in service else variables

    def _text(self, value: str) -> str:
        return self._written(self._specifiers.expand(value))

    def _plain(self, value: str) -> str:
        text = self._specifiers.expand(value)
        return self._references.written(text, template=self._draft.template, expands=False)

    def _written(self, text: str) -> str:
        return self._references.written(text, template=self._draft.template)

    def _set(self, section: str, key: str, value: str | bool | int | dict[str, str], place: Place) -> None:
        self._draft.set(section, key, value, place)

    def _extend(self, section: str, key: str, values: list[str], place: Place) -> None:
        before = self._draft.tables.get(section, {}).get(key, [])
        assert isinstance(before, list)
        self._draft.set(section, key, [*before, *values], place)


def _why_lost(name: str) -> str:
    return why_lost(name) or "not known to `podvisor convert`"
