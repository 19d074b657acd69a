"""Repeated errors are told once a window, with the number of those held back; none is lost silently (seed S30)."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_WINDOW_SEC = 30.0
MAX_KEYS = 256


@dataclass(slots=True)
class _Key:
    told_at: float
    held_back: int = 0


class ErrorWindow:
    """One per component that may fail over and over."""

    def __init__(self, window_sec: float = DEFAULT_WINDOW_SEC) -> None:
        self._window_sec = window_sec
        self._keys: dict[str, _Key] = {}

    def admit(self, key: str, now: float) -> int | None:
        """How many of `key` were held back since the last line, or None: hold this one back too."""
        known = self._keys.get(key)
        if known is not None and now - known.told_at < self._window_sec:
            known.held_back += 1
            return None
        if known is None and len(self._keys) >= MAX_KEYS:
            self._keys.pop(min(self._keys, key=lambda name: self._keys[name].told_at))
        self._keys[key] = _Key(told_at=now)
        return known.held_back if known is not None else 0

    def clear(self, key: str) -> None:
        """It works again: the next error of `key` is news."""
        self._keys.pop(key, None)
