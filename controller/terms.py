"""The leader's term: the number that every command carries, and that a supervisor never lets fall."""

from __future__ import annotations

from controller.store.base import Store


class Terms:
    """Ours, and the highest that any supervisor has told of."""

    def __init__(self, store: Store, current: int) -> None:
        self.current = current
        self._store = store
        self._seen = current

    def learn(self, term: int) -> None:
        """A message or an answer carried it. A lost volume or a restored store may have set us back (F18)."""
        self._seen = max(self._seen, term)

    async def claim(self) -> int:
        """The term to command with, above all that were seen; taken through the store first if need be."""
        if self._seen > self.current:
            self.current = self._seen = await self._store.take_term(self._seen + 1)
        return self.current
