"""As much of PyPI's `bitmap` as tini's suite uses: which digits of a binary number are 1, from the right."""

from __future__ import annotations


class BitMap:
    def __init__(self, number: int) -> None:
        self._number = number

    @classmethod
    def fromstring(cls, digits: str) -> BitMap:
        return cls(int(digits, 2))

    def nonzero(self) -> list[int]:
        return [place for place in range(self._number.bit_length()) if self._number >> place & 1]
