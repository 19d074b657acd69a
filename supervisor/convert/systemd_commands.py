"""The command lines of one .service -> our argument arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from supervisor.convert.drafts import Draft
from supervisor.convert.remarks import Unconvertible, changed, lost
from supervisor.convert.systemd_file import Assignment
from supervisor.convert.systemd_words import Command, Specifiers, Split, commands, words

_NOTHING = ["/bin/true"]
_MAIN_PID = re.compile(r"\$\{?MAINPID\b")


class Commands:
    def __init__(self, draft: Draft, specifiers: Specifiers, variables: Mapping[str, str] | None) -> None:
        self._draft = draft
        self._specifiers = specifiers
        self._variables = variables

    def convert(self, assignments: Sequence[Assignment]) -> None:
        arrays: dict[str, list[tuple[Assignment, list[str]]]] = {}
        for each in assignments:
            try:
                if _MAIN_PID.search(each.value):
                    raise Unconvertible("MAINPID is not told to commands: KillSignal is sent to the main process")
                for command in commands(each.value, self._specifiers):
                    arrays.setdefault(each.key, []).append((each, self._array(command, each)))
            except Unconvertible as error:
                self._draft.remarks.append(lost(each.place, str(error)))
        self._start(arrays.pop("ExecStart", []), arrays)
        for key, found in arrays.items():
            self._draft.set("Service", key, [array for _, array in found], found[0][0].place)

    def _start(
        self,
        starts: list[tuple[Assignment, list[str]]],
        others: dict[str, list[tuple[Assignment, list[str]]]],
    ) -> None:
        """A oneshot of systemd may have several, which are run one after the other; or, if it only stops, none."""
        if not starts:
            if "ExecStop" in others and self._draft.tables["Service"].get("Type") == "oneshot":
                self._draft.set("Service", "ExecStart", _NOTHING, others["ExecStop"][0][0].place)
            return
        *before, (last, array) = starts
        self._draft.set("Service", "ExecStart", list(array), last.place)
        if before:
            others.setdefault("ExecStartPre", []).extend(before)
            message = "all but the last of several ExecStart became ExecStartPre, which come in the same order"
            self._draft.remarks.append(changed(before[0][0].place, message))

    def _array(self, command: Command, each: Assignment) -> list[str]:
        self._remark_prefixes(command, each)
        arguments = [part for argument in command.arguments for part in self._known(argument)]
        splits = [part.name for part in arguments if isinstance(part, Split)]
        if splits:
            names = ", ".join(f"${name}" for name in dict.fromkeys(splits))
            message = f"{names}: a shell cuts the value at blanks; quotes inside of it are not respected"
            self._draft.remarks.append(changed(each.place, message))
            array = _through_a_shell(command.program, arguments)
        else:
            array = [command.program, *(part for part in arguments if isinstance(part, str))]
        written = [self._written(part) for part in array]
        if written[0].startswith("-"):
            raise Unconvertible("a program whose name begins with - cannot be written")
        return [f"-{written[0]}", *written[1:]] if "-" in command.prefixes else written

    def _known(self, argument: str | Split) -> list[str | Split]:
        """A variable that the unit itself sets is cut now."""
        if isinstance(argument, str) or self._variables is None:
            return [argument]
        value = self._variables.get(argument.name, "")
        if "$" in value or "%" in value:
            return [argument]
        return [word.text for word in words(value)]

    def _remark_prefixes(self, command: Command, each: Assignment) -> None:
        if "@" in command.prefixes:
            message = "the program runs under its own name (argv[0]); the one that @ gave it is left out"
            self._draft.remarks.append(changed(each.place, message))
        if command.prefixes & {"+", "!"} and "User" in self._draft.tables["Service"]:
            message = "every command runs as the unit's User; what needs more belongs into a unit of its own"
            self._draft.remarks.append(lost(each.place, message))
        if "|" in command.prefixes:
            self._draft.remarks.append(lost(each.place, "no shell is put around it: write one"))

    def _written(self, text: str) -> str:
        return self._specifiers.references.written(text, template=self._draft.template)


def _through_a_shell(program: str, arguments: Sequence[str | Split]) -> list[str]:
    literals = [part for part in arguments if isinstance(part, str)]
    numbers = iter(range(1, len(literals) + 1))
    parts = [f"${part.name}" if isinstance(part, Split) else _positional(next(numbers)) for part in arguments]
    return ["/bin/sh", "-c", f'set -f; exec "$0" {" ".join(parts)}', program, *literals]


def _positional(number: int) -> str:
    return f'"${number}"' if number < 10 else f'"${{{number}}}"'
