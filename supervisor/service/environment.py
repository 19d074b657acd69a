"""What stands in a unit's environment, and where it comes from (design 2, row Environment).

An engine inherits what podvisor was started with. Every other unit gets an allow-list and what PassEnvironment names,
so that no exporter sees a model token.
"""

from __future__ import annotations

import pwd
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from supervisor.shared.small_file import read_small
from supervisor.unit.accounts import id_number
from supervisor.unit.model import Execution, Unit

ALLOWED = frozenset({"PATH", "LANG", "LANGUAGE", "TZ", "HOME"})
ALLOWED_PREFIXES = ("LC_", "POD_")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class EnvironmentFileError(Exception):
    """An EnvironmentFile that cannot be read or understood: which, where, and what was expected."""


def inherited(unit: Unit, supervisors: Mapping[str, str]) -> dict[str, str]:
    """The part of the supervisor's own environment that the unit gets."""
    if unit.engine is not None:
        return dict(supervisors)
    passed = set(unit.service.execution.pass_environment)
    return {
        name: value
        for name, value in supervisors.items()
        if name in ALLOWED or name in passed or name.startswith(ALLOWED_PREFIXES)
    }


def account(user: str) -> dict[str, str]:
    """systemd.exec(5), User=: HOME, LOGNAME, USER and SHELL of the account; nothing for a bare unknown number.

    Blocks: the user database may be on another machine (nsswitch.conf(5)).
    """
    try:
        number = id_number(user)
        entry = pwd.getpwnam(user) if number is None else pwd.getpwuid(number)
    except (KeyError, ValueError):
        return {}  # the spawn fails with a better message than we could give here, or the number is enough
    return {"HOME": entry.pw_dir, "LOGNAME": entry.pw_name, "USER": entry.pw_name, "SHELL": entry.pw_shell}


def environment_of(
    unit: Unit,
    expanded: Execution,
    supervisors: Mapping[str, str],
    of_account: Mapping[str, str],
    placement: Mapping[str, str],
    from_files: Mapping[str, str],
) -> dict[str, str]:
    """The whole environment of a unit's processes, the invocation's own variables excepted. Later sources win."""
    environment = inherited(unit, supervisors)
    environment |= of_account
    environment |= placement
    environment |= dict(expanded.environment)
    environment |= from_files
    for name in expanded.unset_environment:
        environment.pop(name, None)
    environment["PODVISOR_UNIT"] = unit.name
    if "EPOCH" in placement:
        environment["PODVISOR_EPOCH"] = placement["EPOCH"]
    return environment


def read_environment_files(declared: tuple[str, ...]) -> dict[str, str]:
    """Later files win; one whose name begins with `-` may be absent. Blocks. Raise EnvironmentFileError."""
    environment: dict[str, str] = {}
    for entry in declared:
        optional, path = entry.startswith("-"), Path(entry.removeprefix("-"))
        try:
            text = read_small(path).decode()
        except FileNotFoundError:
            if optional:
                continue
            raise EnvironmentFileError(
                f"cannot read EnvironmentFile {path}: no such file (write -{path} if it may be absent)"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise EnvironmentFileError(f"cannot read EnvironmentFile {path}: {error}") from error
        environment |= parse_environment_file(text, str(path))
    return environment


def parse_environment_file(text: str, where: str) -> dict[str, str]:
    """NAME=VALUE lines as in systemd.exec(5): comments, quotes, and a backslash that continues a line.

    Raise EnvironmentFileError, which never tells what was found: it may be a secret.
    """
    environment: dict[str, str] = {}
    number = 0
    lines = iter(text.splitlines())
    for line in lines:
        first = number = number + 1
        while line.endswith("\\") and not line.lstrip().startswith(("#", ";")):
            number += 1
            line = line[:-1] + next(lines, "")
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        name, separator, value = stripped.partition("=")
        if not separator or not _NAME.match(name.strip()):
            raise EnvironmentFileError(f"{where}:{first}: expected NAME=VALUE, a comment or an empty line")
        environment[name.strip()] = _unquoted(value.strip(), f"{where}:{first}")
    return environment


def _unquoted(value: str, where: str) -> str:
    """A value that begins with a quote is read as by a shell; any other is itself, so that JSON needs no quoting."""
    if not value.startswith(('"', "'")):
        return value
    lexer = shlex.shlex(value, posix=True, punctuation_chars="")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = "", True, ""
    try:
        return "".join(lexer)
    except ValueError as error:
        raise EnvironmentFileError(f"{where}: cannot read the value: {str(error).lower()}") from error
