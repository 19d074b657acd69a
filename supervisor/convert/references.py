"""Literal text and references of ours (`${VAR}`, `%i`) in one string, until it is written.

Foreign files have escapes and references of their own. While their text is taken apart a reference of ours stands in
it as a mark that no file can contain; when it is written the literal rest is escaped for our own expansion.
"""

from __future__ import annotations

import re

from supervisor.convert.remarks import Unconvertible

INSTANCE = "%i"
_MARK = re.compile("\0(\\d+)\0")


class References:
    """Those of one conversion."""

    def __init__(self) -> None:
        self._written: list[str] = []

    def mark(self, written: str) -> str:
        """What stands for the reference in a text."""
        self._written.append(written)
        return f"\0{len(self._written) - 1}\0"

    def has_any(self, text: str) -> bool:
        return _MARK.search(text) is not None

    def has_variable(self, text: str) -> bool:
        return any(self._written[int(number)].startswith("$") for number in _MARK.findall(text))

    def written(self, text: str, *, template: bool, expands: bool = True) -> str:
        """As our unit file has it. `expands` is false for keys in which no variable is replaced.

        Raise Unconvertible.
        """
        pieces = _MARK.split(text)
        parts = []
        for place, piece in enumerate(pieces):
            if place % 2:
                parts.append(self._written[int(piece)])
                continue
            following = self._written[int(pieces[place + 1])] if place + 1 < len(pieces) else ""
            parts.append(_escaped(piece, following, template, expands))
        if not expands and self.has_variable(text):
            raise Unconvertible("no variable is replaced here")
        return "".join(parts)


def _escaped(literal: str, following: str, template: bool, expands: bool) -> str:
    if template:
        if literal.endswith("%") and following == INSTANCE:
            raise Unconvertible("a % directly before the instance's name cannot be written")
        literal = literal.replace(INSTANCE, f"%{INSTANCE}")
    if not expands:
        return literal
    literal = re.sub(r"\$(?=[${])", "$$", literal)
    return literal + "$" if literal.endswith("$") and following.startswith("$") else literal
