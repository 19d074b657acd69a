"""TOML or JSON text -> plain data, and the line on which every key stands.

`tomllib` and `json` say what a file holds but not where, and an error without a line is half an error. So the
standard parsers judge and read the text, and a scanner that may trust its input to be valid walks it a second
time only to note lines. What the data means is decided elsewhere.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from supervisor.unit.errors import Problem

MAX_DEPTH = 64
"""Of tables and arrays in each other: what reads or writes them later goes down by recursion."""
INTEGERS = range(-(2**63), 2**64)
"""Of 64 bits, with or without a sign: TOML promises no more, and what is larger fits into nothing that uses it."""

KeyPath = tuple[str | int, ...]
"""`("Engine", "Args", "port")`; an int is an index into an array."""


class SyntaxProblem(Exception):
    """The text is not TOML (or JSON) at all, or more than can be made use of."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


class Document(msgspec.Struct, frozen=True):
    """What one file holds."""

    data: Mapping[str, object]
    lines: Mapping[KeyPath, int]

    def line_of(self, path: KeyPath) -> int | None:
        """The line of that key, or of the nearest table around it; None for the file as a whole."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return None


def read_toml(text: str, source: Path) -> Document:
    """Raise SyntaxProblem with the line where `text` stops being TOML."""
    with _at_its_limits(source):
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SyntaxProblem(_toml_problem(error, text, source)) from None
        scanner = _Scanner(text, source, _decode_toml_key)
        scanner.toml()
        return _with_integers_that_fit(Document(data, scanner.lines), source)


def read_json(text: str, source: Path) -> Document:
    """Raise SyntaxProblem with the line where `text` stops being JSON, or when it is not an object."""
    with _at_its_limits(source):
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise SyntaxProblem(Problem(source, error.lineno, "", f"not JSON: {error.msg}")) from None
        if not isinstance(data, dict):
            raise SyntaxProblem(Problem(source, 1, "", "expected a JSON object of sections"))
        scanner = _Scanner(text, source, json.loads)
        scanner.value(())
        return _with_integers_that_fit(Document(data, scanner.lines), source)


@contextmanager
def _at_its_limits(source: Path) -> Iterator[None]:
    """What the parsers raise beside the errors that they name: of depth, and of numbers with thousands of digits."""
    try:
        yield
    except RecursionError:
        message = "cannot be read: tables and arrays are nested too deep"
    except (ValueError, OverflowError) as error:
        message = f"cannot be read: {str(error).partition(';')[0]}"
    else:
        return
    raise SyntaxProblem(Problem(source, None, "", message))


def _with_integers_that_fit(document: Document, source: Path) -> Document:
    for path, value in _values((), document.data):
        if isinstance(value, int) and value not in INTEGERS:
            message = "the integer is too large: expected one of 64 bits"
            raise SyntaxProblem(Problem(source, document.line_of(path), ".".join(map(str, path)), message))
    return document


def _values(path: KeyPath, value: object) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _values((*path, key), inner)
    else:
        yield path, value


_AT = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


def _toml_problem(error: tomllib.TOMLDecodeError, text: str, source: Path) -> Problem:
    # tomllib has attributes for the place only from Python 3.14 on; the message always ends with it.
    message = str(error)
    place = _AT.search(message)
    line = int(place[1]) if place and place[1] else max(1, len(text.splitlines()))
    return Problem(source, line, "", f"not TOML: {_AT.sub('', message)}")


def _decode_toml_key(quoted: str) -> str:
    return str(tomllib.loads(f"key = {quoted}")["key"])


_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}\n#]*")
_BASIC_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL_STRING = re.compile(r"'[^'\n]*'")
# A multi-line string may end in up to two quotes of its own before the closing three.
_MULTILINE_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}', re.DOTALL)


class _Scanner:
    """Walks valid text once. JSON's objects are TOML's inline tables with `:` for `=`.

    Raise SyntaxProblem where it goes down too deep.
    """

    def __init__(self, text: str, source: Path, decode_key: Callable[[str], str]) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._source = source
        self._decode_key = decode_key
        self._position = 0
        self._line = 1
        self._array_lengths: dict[KeyPath, int] = {}

    def toml(self) -> None:
        table: KeyPath = ()
        self._space()
        while self._position < len(self._text):
            if self._next("["):
                table = self._header()
            else:
                self._pair(table)
            self._space()

    def value(self, path: KeyPath) -> None:
        self._space()
        self._check_depth(path)
        if self._next("{"):
            self._items("}", lambda _: self._pair(path))
        elif self._next("["):
            self._items("]", lambda index: self.value((*path, index)))
        else:
            self._scalar()

    def _items(self, closing: str, item: Callable[[int], None]) -> None:
        self._move(1)
        self._space()
        index = 0
        while not self._next(closing):
            item(index)
            index += 1
            self._space()
            if self._next(","):
                self._move(1)
                self._space()
        self._move(1)

    def _header(self) -> KeyPath:
        brackets = 2 if self._text.startswith("[[", self._position) else 1
        self._move(brackets)
        line, keys = self._line, self._keys()
        self._check_depth(tuple(keys))
        self._space()
        self._move(brackets)
        path: KeyPath = ()
        for key in keys[:-1]:
            path = self._inside((*path, key), line)
        path = (*path, keys[-1])
        if brackets == 2:
            self.lines.setdefault(path, line)
            index = self._array_lengths.get(path, 0)
            self._array_lengths[path] = index + 1
            path = (*path, index)
        # A table first seen inside a dotted header gets its own header's line once that comes.
        self.lines[path] = line
        return path

    def _inside(self, path: KeyPath, line: int) -> KeyPath:
        """A header below an array of tables speaks of the array's last element."""
        self.lines.setdefault(path, line)
        length = self._array_lengths.get(path)
        return path if length is None else (*path, length - 1)

    def _pair(self, table: KeyPath) -> None:
        self._space()
        line, path = self._line, table
        for key in self._keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._space()
        self._move(1)
        self.value(path)

    def _check_depth(self, path: KeyPath) -> None:
        if len(path) > MAX_DEPTH:
            message = f"tables and arrays are nested more than {MAX_DEPTH} deep"
            raise SyntaxProblem(Problem(self._source, self._line, "", message))

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._space()
            if self._text[self._position] in "\"'":
                keys.append(self._decode_key(self._take(self._string_pattern())))
            else:
                keys.append(self._take(_BARE_KEY))
            self._space()
            if not self._next("."):
                return keys
            self._move(1)

    def _scalar(self) -> None:
        if self._text[self._position] in "\"'":
            self._take(self._string_pattern())
        else:
            self._take(_BARE_VALUE)

    def _string_pattern(self) -> re.Pattern[str]:
        quote = self._text[self._position]
        if self._text.startswith(quote * 3, self._position):
            return _MULTILINE_STRING
        return _BASIC_STRING if quote == '"' else _LITERAL_STRING

    def _space(self) -> None:
        self._take(_SPACE)

    def _next(self, character: str) -> bool:
        return self._text.startswith(character, self._position)

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._position)
        if match is None:
            raise AssertionError(f"line {self._line}: the text was read as valid but cannot be scanned")
        self._move(len(match[0]))
        return match[0]

    def _move(self, length: int) -> None:
        end = self._position + length
        self._line += self._text.count("\n", self._position, end)
        self._position = end
