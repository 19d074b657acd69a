"""supervisord's `%(name)s` in a value: what is known now is filled in, what its environment says becomes `${NAME}`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

import msgspec

from supervisor.convert.references import References
from supervisor.convert.remarks import Unconvertible

_EXPANSION = re.compile(r"%(?:%|\((?P<name>[^)]*)\)(?P<spec>[#0 +-]*\d*(?:\.\d+)?[a-zA-Z])|)")
_ENVIRONMENT = "ENV_"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PROCESS_NUMBER = "process_num"


class Expansions(msgspec.Struct, frozen=True):
    """What is known where a value stands."""

    references: References
    known: Mapping[str, str | int]
    """here, program_name, group_name, numprocs."""
    process_number: Callable[[str], str] | None = None
    """Given `02d`, what stands for the number; None where there is none."""

    def expand(self, value: str) -> str:
        """Raise Unconvertible where supervisord would refuse the value."""
        return _EXPANSION.sub(self._replaced, value)

    def _replaced(self, found: re.Match[str]) -> str:
        name, spec = found["name"], found["spec"]
        if found[0] == "%%":
            return "%"
        if name is None:
            raise Unconvertible("a % that begins no expansion such as %(program_name)s; supervisord refuses it too")
        if name.startswith(_ENVIRONMENT):
            return self._variable(name.removeprefix(_ENVIRONMENT), spec)
        if name == "host_node_name":
            return self.references.mark("${HOSTNAME}")
        if name == PROCESS_NUMBER and self.process_number is not None:
            return self.process_number(spec)
        if name not in self.known:
            raise Unconvertible(f"%({name}){spec} is not known here")
        return formatted(spec, self.known[name])

    def _variable(self, name: str, spec: str) -> str:
        if spec != "s" or _VARIABLE.fullmatch(name) is None:
            raise Unconvertible(f"%(ENV_{name}){spec} cannot be written as ${{{name}}}")
        return self.references.mark(f"${{{name}}}")


def formatted(spec: str, value: str | int) -> str:
    """Raise Unconvertible."""
    try:
        return f"%{spec}" % value
    except (TypeError, ValueError) as error:
        raise Unconvertible(f"%{spec} does not fit {value!r}: {error}") from None


def specs_of_process_number(value: str) -> frozenset[str]:
    return frozenset(found["spec"] for found in _EXPANSION.finditer(value) if found["name"] == PROCESS_NUMBER)


def words(value: str) -> list[str]:
    """As supervisord cuts a command. Raise Unconvertible."""
    try:
        return shlex.split(value)
    except ValueError as error:
        raise Unconvertible(f"{error}; supervisord cannot read it either") from None


def pairs(value: str) -> dict[str, str]:
    """`A="1",B=two` as supervisord reads its environment. Raise Unconvertible."""
    lexer = shlex.shlex(value)
    lexer.wordchars += "/.+-():\0"
    try:
        tokens = list(lexer)
    except ValueError as error:
        raise Unconvertible(f"{error}; supervisord cannot read it either") from None
    found: dict[str, str] = {}
    for place in range(0, len(tokens), 4):
        name_and_value = tokens[place : place + 3]
        separator = tokens[place + 3 : place + 4]
        if len(name_and_value) != 3 or name_and_value[1] != "=" or separator not in ([], [","]):
            raise Unconvertible('expected NAME="value",NAME="value"')
        found[name_and_value[0]] = name_and_value[2].strip("'\"")
    return found
