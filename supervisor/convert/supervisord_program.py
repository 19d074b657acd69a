"""The keys of one [program:x] -> a draft. Facts: supervisord's documentation, "[program:x] Section Settings"."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from supervisor.convert.drafts import Draft
from supervisor.convert.references import References
from supervisor.convert.remarks import Unconvertible, changed, lost
from supervisor.convert.supervisord_expansion import Expansions, pairs, words
from supervisor.convert.supervisord_file import Setting
from supervisor.convert.toml_text import Value
from supervisor.unit.process_values import variable_name
from supervisor.unit.quantities import format_duration
from supervisor.unit.values import Mismatch

CLEAN_SIGNALS = ("SIGHUP", "SIGINT", "SIGTERM", "SIGPIPE")
"""An end by one of these is a success here; for supervisord every signal is unexpected."""
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_SIZES = {"kb": "KiB", "mb": "MiB", "gb": "GiB"}
_STANDARD_ERROR = ("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2", "/proc/1/fd/2")
_STANDARD_STREAMS = (*_STANDARD_ERROR, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/proc/1/fd/1")
_EVENTS = "supervisord's events for its listeners have no counterpart; `podvisor logs` has the lines themselves"

NOT_CARRIED_OVER: Mapping[str, tuple[str, str]] = {
    "stdout_capture_maxbytes": ("0", _EVENTS),
    "stderr_capture_maxbytes": ("0", _EVENTS),
    "stdout_events_enabled": ("false", _EVENTS),
    "stderr_events_enabled": ("false", _EVENTS),
    "stdout_syslog": ("false", "there is no syslog in a container: lines go to the container's output or to a file"),
    "stderr_syslog": ("false", "there is no syslog in a container: lines go to the container's output or to a file"),
    "serverurl": ("AUTO", "there is no XML-RPC server; `podvisor` talks to its socket (PODVISOR_SOCKET)"),
}
"""Key -> (the value that asks for nothing, why another one is lost)."""

READ_ELSEWHERE = frozenset({"process_name", "numprocs", "numprocs_start", "priority"})


class Program:
    """One program's settings, being written into its draft."""

    def __init__(self, draft: Draft, settings: Mapping[str, Setting], expansions: Expansions) -> None:
        self._draft = draft
        self._settings = settings
        self._expansions = expansions
        self._references: References = expansions.references

    def convert(self) -> None:
        steps: Mapping[str, Callable[[Setting], None]] = {
            "command": self._command, "directory": self._directory, "umask": self._umask, "user": self._user,
            "environment": self._environment, "autostart": self._autostart, "autorestart": self._autorestart,
            "exitcodes": self._nothing, "startsecs": self._startsecs, "startretries": self._nothing,
            "stopsignal": self._stopsignal, "stopwaitsecs": self._stopwaitsecs, "stopasgroup": self._stopasgroup,
            "killasgroup": self._nothing, "redirect_stderr": self._nothing, "stdout_logfile": self._nothing,
            "stderr_logfile": self._nothing, "stdout_logfile_maxbytes": self._maxbytes,
            "stdout_logfile_backups": self._backups, "stderr_logfile_maxbytes": self._of_stderr,
            "stderr_logfile_backups": self._of_stderr,
        }  # fmt: skip
        for key, setting in self._settings.items():
            try:
                if key in NOT_CARRIED_OVER:
                    self._refuse(key, setting)
                elif key in steps:
                    steps[key](setting)
                elif key not in READ_ELSEWHERE:
                    self._draft.remarks.append(lost(setting.place, "supervisord knows no such key"))
            except Unconvertible as error:
                self._draft.remarks.append(lost(setting.place, str(error)))
        self._start_limit()
        self._outputs()

    def _nothing(self, setting: Setting) -> None:
        """Read together with another key, or true of every unit."""

    def _refuse(self, key: str, setting: Setting) -> None:
        harmless, why = NOT_CARRIED_OVER[key]
        if setting.value.lower() not in (harmless.lower(), *(_FALSE if harmless == "false" else ())):
            self._draft.remarks.append(lost(setting.place, why))

    def _command(self, setting: Setting) -> None:
        argv = words(self._expansions.expand(setting.value))
        if any(self._references.has_variable(word) for word in argv):
            message = "a variable's value stays within one argument; supervisord cut it at blanks"
            self._draft.remarks.append(changed(setting.place, message))
        if argv and argv[0].startswith("-"):
            raise Unconvertible("a program whose name begins with - cannot be written: there it means something else")
        self._set("ExecStart", [self._written(word) for word in argv], setting)

    def _directory(self, setting: Setting) -> None:
        self._set("WorkingDirectory", self._text(setting), setting)

    def _user(self, setting: Setting) -> None:
        self._set("User", self._text(setting), setting)
        message = "HOME, USER, LOGNAME and SHELL become the user's; supervisord leaves its own"
        self._draft.remarks.append(changed(setting.place, message))

    def _umask(self, setting: Setting) -> None:
        self._set("UMask", self._text(setting), setting)

    def _environment(self, setting: Setting) -> None:
        variables = {}
        for name, value in pairs(self._expansions.expand(setting.value)).items():
            try:
                variable_name.read(name)
            except Mismatch:
                self._draft.remarks.append(lost(setting.place, f"{name!r} is no name for a variable"))
                continue
            variables[name] = self._written(value)
        if variables:
            before = self._draft.tables.get("Service", {}).get("Environment", {})
            assert isinstance(before, dict)
            self._set("Environment", before | variables, setting)

    def _autostart(self, setting: Setting) -> None:
        if self._boolean(setting):
            return
        self._draft.enabled = False
        message = "every unit in a directory of units is started: it is written as .toml.off, which is not read"
        self._draft.remarks.append(changed(setting.place, message))

    def _autorestart(self, setting: Setting) -> None:
        if setting.value.lower() == "unexpected":
            return self._unexpected(setting)
        self._set("Restart", "always" if self._boolean(setting) else "no", setting)
        return None

    def _unexpected(self, setting: Setting) -> None:
        codes = self._exit_codes()
        self._set("Restart", "on-failure", setting)
        others: list[int | str] = [code for code in codes if code]
        if others:
            self._set("SuccessExitStatus", others, self._settings["exitcodes"])
        forced: list[int | str] = [*CLEAN_SIGNALS]
        self._set("RestartForceExitStatus", forced if 0 in codes else [0, *forced], setting)

    def _exit_codes(self) -> list[int]:
        setting = self._settings.get("exitcodes")
        if setting is None:
            return [0]
        try:
            return [int(code) for code in setting.value.split(",")]
        except ValueError:
            raise Unconvertible(f"exitcodes: found {setting.value!r}, expected numbers such as 0,2") from None

    def _startsecs(self, setting: Setting) -> None:
        if self._number("startsecs", 1) > 1:
            message = "a unit counts as started once it is executed; [Readiness] can ask it whether it is"
            self._draft.remarks.append(lost(setting.place, message))

    def _start_limit(self) -> None:
        """supervisord gives up after so many starts in a row that were over within startsecs, and waits 1 s, 2 s, …"""
        written = self._settings.get("startretries")
        if written is None and self._draft.tables.get("Service", {}).get("Restart") != "always":
            return
        place = written or self._settings.get("autorestart")
        try:
            retries, seconds = self._number("startretries", 3), self._number("startsecs", 1)
        except Unconvertible as error:
            self._draft.remarks.append(lost(place.place if place else self._draft.place, str(error)))
            return
        if seconds == 0:
            self._set("StartLimitBurst", 0, place)  # no start is ever too short, so that none is counted
            return
        window = (retries + 1) * seconds + retries * (retries + 1) // 2
        self._set("StartLimitBurst", retries + 1, place)
        self._set("StartLimitIntervalSec", format_duration(max(1, window)), place)
        if written is not None:
            message = f"counts the starts of the last {format_duration(max(1, window))}, not those in a row"
            self._draft.remarks.append(changed(written.place, message))

    def _stopsignal(self, setting: Setting) -> None:
        name = setting.value.upper()
        self._set("KillSignal", name if name.isdecimal() or name.startswith("SIG") else f"SIG{name}", setting)

    def _stopwaitsecs(self, setting: Setting) -> None:
        self._set("TimeoutStopSec", format_duration(self._number("stopwaitsecs", 10)), setting)

    def _stopasgroup(self, setting: Setting) -> None:
        if self._boolean(setting):
            self._set("KillMode", "control-group", setting)

    def _maxbytes(self, setting: Setting) -> None:
        value = setting.value.lower()
        if not self._to_file("stdout"):
            return
        if value == "0":
            raise Unconvertible("log files are always rotated, at 50 MB unless LogRotateSize says otherwise")
        number, suffix = (value[:-2], _SIZES[value[-2:]]) if value[-2:] in _SIZES else (value, "")
        self._set("LogRotateSize", f"{number}{suffix}" if suffix else self._whole(number), setting)

    def _backups(self, setting: Setting) -> None:
        if self._to_file("stdout"):
            self._set("LogRotateKeep", self._whole(setting.value), setting)

    def _of_stderr(self, setting: Setting) -> None:
        if not self._to_file("stderr"):
            return
        other = self._settings.get(setting.place.key.rpartition(".")[2].replace("stderr", "stdout"))
        if other is None or other.value != setting.value:
            raise Unconvertible("both files of a unit are rotated by the same LogRotateSize and LogRotateKeep")

    def _outputs(self) -> None:
        to = {}
        for stream, key in (("stdout", "StandardOutput"), ("stderr", "StandardError")):
            setting = self._settings.get(f"{stream}_logfile")
            if setting is None:
                continue
            try:
                to[stream] = self._output(setting)
            except Unconvertible as error:
                self._draft.remarks.append(lost(setting.place, str(error)))
                continue
            if to[stream] is not None and not (stream == "stderr" and self._redirected()):
                self._set(key, to[stream] or "", setting)
        if to.get("stdout") is not None and not self._draft.has("Service", "StandardError") and not self._redirected():
            self._draft.set("Service", "StandardError", "prefix", self._draft.place)  # else it followed into the file

    def _output(self, setting: Setting) -> str | None:
        """None where supervisord chose a file by itself: then lines go to the container's output."""
        if setting.value.upper() == "AUTO":
            return None
        if setting.value.upper() == "NONE":
            return "null"
        if setting.value in _STANDARD_STREAMS:
            if setting.value in _STANDARD_ERROR:
                message = "all lines of units go to the container's standard output"
                self._draft.remarks.append(changed(setting.place, message))
            return "pass"
        if setting.value == "syslog":
            raise Unconvertible(NOT_CARRIED_OVER["stdout_syslog"][1])
        expanded = self._expansions.expand(setting.value)
        if not expanded.startswith("/") and not self._references.has_any(expanded[:1]):
            expanded = f"{Path(str(self._expansions.known['here'])) / expanded}"
        path = self._written(expanded)
        if self._draft.template and "%i" not in path:
            path = re.sub(r"(\.[^./]*)?$", r"-%i\1", path, count=1)
            self._draft.remarks.append(changed(setting.place, f"a file for each instance, {path}"))
        return f"file:{path}"

    def _to_file(self, stream: str) -> bool:
        setting = self._settings.get(f"{stream}_logfile")
        return setting is not None and setting.value not in (*_STANDARD_STREAMS, "syslog", "NONE", "AUTO")

    def _redirected(self) -> bool:
        setting = self._settings.get("redirect_stderr")
        return setting is not None and setting.value.lower() in _TRUE

    def _boolean(self, setting: Setting) -> bool:
        if setting.value.lower() not in (*_TRUE, *_FALSE):
            raise Unconvertible(f"found {setting.value!r}, expected true or false")
        return setting.value.lower() in _TRUE

    def _number(self, key: str, default: int) -> int:
        setting = self._settings.get(key)
        return default if setting is None else self._whole(setting.value)

    def _whole(self, value: str) -> int:
        if not (value.isascii() and value.isdecimal()):
            raise Unconvertible(f"found {value!r}, expected a whole number")
        return int(value)

    def _text(self, setting: Setting) -> str:
        return self._written(self._expansions.expand(setting.value))

    def _written(self, text: str) -> str:
        return self._references.written(text, template=self._draft.template)

    def _set(self, key: str, value: Value, setting: Setting | None) -> None:
        self._draft.set("Service", key, value, setting.place if setting else None)
