"""Words of a systemd value: quoting and escapes (systemd.syntax(7)), specifiers (systemd.unit(5)), command lines
(systemd.service(5)).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from supervisor.convert.references import INSTANCE, References
from supervisor.convert.remarks import Unconvertible

_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
          "\\": "\\", '"': '"', "'": "'", "s": " "}  # fmt: skip
_CODE = re.compile(r"x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})")
_BLANKS = " \t\n\r"
_SEMICOLON = re.compile(r"\\;(?=[ \t\n\r]|$)")
"""A word of its own that ends no command; in quotes, or beside other letters, the backslash stays."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_FOR_ROOT: Mapping[str, str] = {
    "h": "/root", "u": "root", "U": "0", "g": "root", "G": "0", "s": "/bin/sh", "t": "/run", "S": "/var/lib",
    "C": "/var/cache", "L": "/var/log", "E": "/etc", "T": "/tmp", "V": "/var/tmp", "D": "/usr/share",
}  # fmt: skip
"""What they are for the system's manager, which runs as root."""
_UNKNOWN: Mapping[str, str] = {
    "a": "ARCHITECTURE", "A": "IMAGE_VERSION", "b": "BOOT_ID", "B": "BUILD_ID", "d": "CREDENTIALS_DIRECTORY",
    "m": "MACHINE_ID", "M": "IMAGE_ID", "o": "OS_ID", "q": "PRETTY_HOSTNAME", "v": "KERNEL_RELEASE",
    "w": "OS_VERSION_ID", "W": "OS_VARIANT_ID",
}  # fmt: skip


class Specifiers(msgspec.Struct, frozen=True):
    """What `%n` and its like are in one unit."""

    references: References
    unit: str
    """`foo@.service` for a template."""
    path: str

    def expand(self, value: str) -> str:
        """Raise Unconvertible for a specifier that nobody knows."""
        return re.sub(r"%(.?)", lambda found: self._replaced(found[1]), value, flags=re.DOTALL)

    def _replaced(self, letter: str) -> str:
        stem = self.unit.rpartition(".")[0]
        prefix, at, instance = stem.partition("@")
        here = self.references.mark(INSTANCE) if at and not instance else instance
        last = prefix.rpartition("-")[2]
        own: Mapping[str, str] = {
            "%": "%", "n": f"{prefix}{at}{here}.service", "N": f"{prefix}{at}{here}", "p": prefix, "P": prefix,
            "i": here, "I": here, "j": last, "J": last, "f": f"/{here or prefix}", "y": self.path,
            "Y": self.path.rpartition("/")[0],
        }  # fmt: skip
        if letter in own:
            return own[letter]
        if letter in _FOR_ROOT:
            return _FOR_ROOT[letter]
        if letter in ("H", "l"):
            return self.references.mark("${HOSTNAME}")
        if letter in _UNKNOWN:
            name = f"SYSTEMD_{_UNKNOWN[letter]}"
            return self.references.mark(f"${{{name}:?%{letter} of systemd is not known here: set {name}}}")
        raise Unconvertible(f"there is no specifier %{letter}; a plain % is written %%")


class Word(msgspec.Struct, frozen=True):
    text: str
    bare: bool
    """Nothing in it was quoted or escaped: only such a word can be a `;` that ends a command."""


def words(value: str) -> list[Word]:
    """Of a command line: what systemd does not know as an escape it keeps there, backslash and all.

    Raise Unconvertible for a quote that is never closed.
    """
    return [*_words(value, lambda escape: escape)]


def assigned_words(value: str) -> Iterator[Word]:
    """Of Environment=, where nothing is taken from an escape on that systemd does not know, or an open quote.

    Raise Unconvertible when that is reached.
    """
    return _words(value, _refused)


def _refused(escape: str) -> str:
    raise Unconvertible(f"{escape} is no escape: systemd takes nothing from there on")


def _words(value: str, unknown: Callable[[str], str]) -> Iterator[Word]:
    position = 0
    while position < len(value):
        if value[position] in _BLANKS:
            position += 1
            continue
        if _SEMICOLON.match(value, position):
            word, position = Word(";", bare=False), position + 2
        else:
            word, position = _word(value, position, unknown)
        yield word


def _word(value: str, position: int, unknown: Callable[[str], str]) -> tuple[Word, int]:
    parts: list[str] = []
    quote, bare = "", True
    while position < len(value):
        character = value[position]
        if character == "\\":
            part, position = _escape(value, position, unknown)
            parts.append(part)
            bare = False
        elif quote and character == quote:
            quote, position = "", position + 1
        elif not quote and character in "\"'":
            quote, bare, position = character, False, position + 1
        elif not quote and character in _BLANKS:
            break
        else:
            parts.append(character)
            position += 1
    if quote:
        raise Unconvertible(f"the quote {quote} is never closed")
    return Word("".join(parts), bare), position


def _escape(value: str, position: int, unknown: Callable[[str], str]) -> tuple[str, int]:
    following = value[position + 1 : position + 2]
    if following in _PLAIN and following:
        return _PLAIN[following], position + 2
    code = _CODE.match(value, position + 1)
    if code is None:
        return unknown(f"\\{following}"), position + 1 + len(following)
    number = int(code[2], 8) if code[2] else int(code[1] or code[3] or code[4], 16)
    if number == 0 or number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise Unconvertible(f"{value[position : code.end()]} is no character that an argument may hold")
    return chr(number), code.end()


class Split(msgspec.Struct, frozen=True):
    """`$NAME` as a word of its own: systemd cuts its value at blanks, into any number of arguments."""

    name: str


class Command(msgspec.Struct, frozen=True):
    prefixes: frozenset[str]
    program: str
    arguments: tuple[str | Split, ...]
    """With marks for references of ours."""


def commands(value: str, specifiers: Specifiers) -> Iterator[Command]:
    """The commands of one line. Raise Unconvertible."""
    current: list[Word] = []
    for word in [*words(value), Word(";", bare=True)]:
        if word == Word(";", bare=True):
            if current:
                yield _command(current, specifiers)
            current = []
        else:
            current.append(word)


def _command(line: list[Word], specifiers: Specifiers) -> Command:
    program = line[0].text.lstrip("@-:+!|")
    prefixes = frozenset(line[0].text[: len(line[0].text) - len(program)])
    if not program:
        raise Unconvertible("the program is missing")
    arguments = [specifiers.expand(word.text) for word in line[1:]]
    if "@" in prefixes:
        arguments = arguments[1:]  # the name under which it is to run
    path = specifiers.expand(program)
    if ":" in prefixes:
        return Command(prefixes, path, tuple(arguments))
    return Command(prefixes, path, tuple(_with_variables(each, specifiers) for each in arguments))


def _with_variables(argument: str, specifiers: Specifiers) -> str | Split:
    """`${NAME}` is empty if it is not set, `$$` is a dollar, any other dollar is itself."""
    if argument.startswith("$") and _VARIABLE.fullmatch(argument[1:]):
        return Split(argument[1:])

    def replaced(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else specifiers.references.mark(f"${{{found[1]}:-}}")

    return re.sub(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}", replaced, argument)
