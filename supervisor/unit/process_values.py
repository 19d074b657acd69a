"""Converters for what describes a process: commands, signals, exit statuses, limits, environment, flags."""

from __future__ import annotations

import math
import os
import re
import signal

from supervisor.unit.accounts import HIGHEST_ID, id_number
from supervisor.unit.model import ArgValue, Command, Repeat, ResourceLimit
from supervisor.unit.quantities import parse_size
from supervisor.unit.values import Converter, Mismatch, either, list_of, mapped, matching, table_of, word


def _signal(found: object) -> str:
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise Mismatch
    if isinstance(found, int) or found.isdecimal():
        by_number = {each.value: each.name for each in signal.Signals}
        if int(found) not in by_number:
            raise Mismatch
        return by_number[int(found)]
    name = found.upper() if found.upper().startswith("SIG") else f"SIG{found.upper()}"
    if name not in signal.Signals.__members__:
        raise Mismatch
    return name


_SIGNAL_SCHEMA = {"type": "string", "pattern": r"^(([Ss][Ii][Gg])?[A-Za-z][A-Za-z0-9+]*|[1-9][0-9]?)$"}
signal_name = Converter(
    'a signal such as "SIGTERM"', _signal, {"anyOf": [_SIGNAL_SCHEMA, {"type": "integer", "minimum": 1, "maximum": 64}]}
)


def _exit_status(found: object) -> int | str:
    if isinstance(found, int) and not isinstance(found, bool):
        if not 0 <= found <= 255:
            raise Mismatch("an exit code is 0 to 255")
        return found
    if isinstance(found, str) and found.isdecimal():
        return _exit_status(int(found))
    # sysexits.h by name, as in systemd.exec(5) "Process Exit Codes".
    if isinstance(found, str) and isinstance(code := getattr(os, f"EX_{found}", None), int):
        return code
    return _signal(found)


_exit_status_item: Converter[int | str] = Converter(
    "",
    _exit_status,
    {"anyOf": [{"type": "string", "pattern": "^[A-Za-z0-9]+$"}, {"type": "integer", "minimum": 0, "maximum": 255}]},
)
exit_statuses = list_of(_exit_status_item, 'exit codes or signal names such as [75, "SIGKILL"]')
# As in systemd.service(5) the key adds to what is success anyway.
success_statuses = mapped(exit_statuses, lambda statuses: tuple(dict.fromkeys((0, *statuses))))


_UNLIMITED = 2**63
"""What is not below it is no limit for the kernel either: RLIM_INFINITY written out is 18446744073709551615."""


def _limit_half(written: str) -> float | None:
    if not written:
        return None
    value = math.inf if written == "infinity" else parse_size(written)
    return value if value < _UNLIMITED else math.inf


def resource_limit(name: str) -> Converter[ResourceLimit]:
    """`soft:hard`; one value sets both, as in systemd.exec(5)."""

    def read(found: object) -> ResourceLimit:
        if isinstance(found, bool) or not isinstance(found, str | int) or not str(found).strip(" :"):
            raise Mismatch
        first, colon, second = str(found).replace(" ", "").partition(":")
        soft = _limit_half(first)
        hard = _limit_half(second) if colon else soft
        if soft is not None and hard is not None and soft > hard:
            raise Mismatch("the soft limit is above the hard one")
        return ResourceLimit(name, soft, hard)

    return Converter('"soft:hard", a number or "infinity"', read, {"type": ["string", "integer"]})


def _account(found: object) -> str:
    written = word.read(found)
    try:
        id_number(written)
    except ValueError:
        raise Mismatch(f"numbers are from 0 to {HIGHEST_ID}") from None
    return written


account = Converter("a name or a number", _account, word.schema)
accounts = list_of(account, "an array of names or numbers")


def _umask(found: object) -> int:
    # TOML's 22 is decimal and nobody means it: only a string keeps what was written.
    if not isinstance(found, str) or re.fullmatch(r"0?o?[0-7]{1,4}", found) is None:
        raise Mismatch
    value = int(found.replace("o", ""), 8)
    if value > 0o777:
        raise Mismatch
    return value


umask = Converter(
    'an octal number as a string, such as "0022"', _umask, {"type": "string", "pattern": "^0?o?[0-7]{1,4}$"}
)


def _cpu_range(written: str) -> range:
    match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", written)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise Mismatch
    return range(int(match[1]), int(match[2] or match[1]) + 1)


def _cpus(found: object) -> frozenset[int]:
    parts: list[str] = []
    for item in found if isinstance(found, list) else [found]:
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise Mismatch
        parts += re.split(r"[,\s]+", str(item).strip())
    return frozenset(cpu for part in parts for cpu in _cpu_range(part))


_CPU_RANGES = r"\d{1,5}(-\d{1,5})?"
_CPUS_SCHEMA: dict[str, object] = {
    "anyOf": [
        {"type": "string", "pattern": rf"^\s*{_CPU_RANGES}([,\s]+{_CPU_RANGES})*\s*$"},
        {"type": "integer", "minimum": 0},
    ]
}
cpus = Converter(
    'CPU numbers such as "0-3,8"', _cpus, {"anyOf": [_CPUS_SCHEMA, {"type": "array", "items": _CPUS_SCHEMA}]}
)


def _arguments(found: object) -> tuple[str, ...]:
    if not isinstance(found, list):
        raise Mismatch("an argument array, never a shell string" if isinstance(found, str) else "")
    if not all(isinstance(argument, str) and "\0" not in argument for argument in found):
        raise Mismatch("every argument is a string")
    return tuple(found)


def _command(found: object) -> Command:
    arguments = _arguments(found)
    if not arguments or not arguments[0].removeprefix("-"):
        raise Mismatch("the program is missing")
    program = arguments[0].removeprefix("-")
    return Command((program, *arguments[1:]), ignore_failure=program != arguments[0])


def _commands(found: object) -> tuple[Command, ...]:
    if isinstance(found, list) and all(isinstance(item, list) for item in found):
        return tuple(_command(item) for item in found)
    return (_command(found),)


_ARGUMENTS_SCHEMA: dict[str, object] = {"type": "array", "items": {"type": "string"}}
_COMMAND_SCHEMA = {**_ARGUMENTS_SCHEMA, "minItems": 1}
arguments = Converter('an array of arguments such as ["--verbose"]', _arguments, _ARGUMENTS_SCHEMA)
command = Converter('an argument array such as ["sleep", "5"]', _command, _COMMAND_SCHEMA)
commands = Converter(
    'an array of argument arrays such as [["sleep", "5"]]',
    _commands,
    {"anyOf": [_COMMAND_SCHEMA, {"type": "array", "items": _COMMAND_SCHEMA}]},
)

variable_name = matching(r"[A-Za-z_][A-Za-z0-9_]*", "a variable's name")
variable_names = list_of(variable_name, "names of variables")


def variable_value(found: object) -> str:
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        raise Mismatch("values are strings or numbers")
    if "\0" in str(found):
        raise Mismatch
    return str(found)


_assignment_table = table_of(Converter("", variable_value, {"type": ["string", "number"]}), "")


def _assignments(found: object) -> tuple[tuple[str, str], ...]:
    if isinstance(found, dict):
        pairs = _assignment_table.read(found)
    else:
        lines = found if isinstance(found, list) else [found]
        pairs = tuple(_assignment(line) for line in lines)
    for name, _ in pairs:
        variable_name.read(name)
    return tuple(dict(pairs).items())


def _assignment(found: object) -> tuple[str, str]:
    if not isinstance(found, str) or "=" not in found or "\0" in found:
        raise Mismatch
    name, _, value = found.partition("=")
    return name, value


assignments = Converter(
    'a table of variables, or an array such as ["NAME=value"]',
    _assignments,
    {"anyOf": [_assignment_table.schema, {"type": "array", "items": {"type": "string", "pattern": "="}}]},
)

output = matching(r"pass|prefix|json|null|file:/.+|file:.*\$\{.+", '"pass", "prefix", "json", "null" or "file:/PATH"')
unit_name = matching(
    r"(?=.{1,64}$)[A-Za-z0-9_:.-]+(@[A-Za-z0-9_:.-]+)?", "a unit's name of at most 64 letters, digits and _:.-@"
)
unit_names = list_of(unit_name, "names of units")


def _credential(found: object) -> tuple[str, str]:
    name, colon, path = found.partition(":") if isinstance(found, str) else ("", "", "")
    if (
        not colon
        or not path.startswith("/")
        or "\0" in path
        or re.fullmatch(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*", name) is None
    ):
        raise Mismatch
    return name, path


credentials = list_of(
    Converter("", _credential, {"type": "string", "pattern": "^[A-Za-z0-9_.-]+:/"}),
    'an array of "name:/path/of/the/secret"',
)


def _flag_item(found: object) -> str:
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        raise Mismatch("the values of an array are strings or numbers")
    return str(found)


def _flag_value(found: object) -> ArgValue:
    if isinstance(found, str | int | float):
        return found
    if isinstance(found, list):
        return tuple(_flag_item(item) for item in found)
    if not isinstance(found, dict):
        raise Mismatch
    if "repeat" not in found:
        if not _is_json(found):
            raise Mismatch("dates and times are strings in JSON, which a table becomes")
        return found
    if set(found) != {"repeat"} or not isinstance(found["repeat"], list):
        raise Mismatch("{ repeat = [ … ] } stands alone")
    return Repeat(_flag_item(item) for item in found["repeat"])


def _is_json(found: object) -> bool:
    match found:
        case dict():
            return all(map(_is_json, found.values()))
        case list():
            return all(map(_is_json, found))
        case _:
            return isinstance(found, str | int | float)


def _flag_table(found: object) -> tuple[tuple[str, ArgValue], ...]:
    pairs = _flag_pairs.read(found)
    for name, _ in pairs:
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) is None:
            raise Mismatch(f"{name!r} is not a flag without its dashes")
    return pairs


_flag_pairs: Converter[tuple[tuple[str, ArgValue], ...]] = table_of(Converter("", _flag_value), "")
flags = Converter(
    "a table of flags without their dashes",
    _flag_table,
    {"type": "object", "propertyNames": {"pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$"}},
)

device_memory_probe: Converter[str | Command] = either(
    matching(r"nvml|off", '"nvml", "off"'),
    command,
)
