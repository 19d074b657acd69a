"""The leader's term: the number that every command carries, and that a supervisor never lets fall."""

from __future__ import annotations

from controller.store.base import Store

MOST_AHEAD = 2**24
"""Of us, in what others tell of terms and ids: so many elections there are in no fleet. Without a limit one damaged or
malicious supervisor could make everybody take a number that is the last, and nobody could command any more."""


class Incredible(Exception):
    """A number that is so far beyond ours that no controller has ever given it out: which, and what to do."""

    def __init__(self, name: str, told: int, ours: int) -> None:
        super().__init__(
            f"{name}: {told} is no number that a controller has given out, ours is {ours}: the state of that "
            "supervisor is damaged; end its container and remove its state_dir"
        )


def check_credible(name: str, told: int, ours: int) -> None:
    """Raises Incredible."""
    if told > ours + MOST_AHEAD:
        raise Incredible(name, told, ours)


class Terms:
    """Ours, and the highest that any supervisor has told of."""

    def __init__(self, store: Store, current: int) -> None:
        self.current = current
        self._store = store
        self._seen = current

    def learn(self, term: int) -> None:
        """A message or an answer carried it. A lost volume or a restored store may have set us back (F18).

        Raises Incredible: then nothing is learnt.
        """
        check_credible("term", term, self.current)
        self._seen = max(self._seen, term)

    async def claim(self) -> int:
        """The term to command with, above all that were seen; taken through the store first if need be."""
        if self._seen > self.current:
            self.current = self._seen = await self._store.take_term(self._seen + 1)
        return self.current
