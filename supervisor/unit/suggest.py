"""`unknown key …; did you mean …?`: the nearest known name."""

from __future__ import annotations

from collections.abc import Iterable

ALIKE = 0.6
SURELY_MEANT = 0.8


def nearest(name: str, known: Iterable[str], alike: float = ALIKE) -> str | None:
    """The known name most like `name`, or None when nothing is like it."""
    # Only a mistake pays for the import: `podvisor run` starts without it.
    from difflib import get_close_matches

    by_folded = {each.casefold(): each for each in known}
    matches = get_close_matches(name.casefold(), by_folded, n=1, cutoff=alike)
    return by_folded[matches[0]] if matches else None


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that nobody knows."""
    names = list(known)
    guess = nearest(name, names)
    if guess is not None:
        return f"unknown {kind} {name!r}; did you mean {guess!r}?"
    return f"unknown {kind} {name!r}; known are {', '.join(sorted(names))}"
