"""The budgets that were spent from; how they are spent and when they are whole again is `model.budget`'s."""

from __future__ import annotations

from collections.abc import Mapping

from controller.model import budget
from controller.model.budget import Budget, BudgetKey
from controller.model.instance import Instance

KEPT = 10_000
"""The one that was touched longest ago is forgotten."""


class Budgets:
    def __init__(self, loaded: Mapping[BudgetKey, Budget]) -> None:
        self._spent = dict(loaded)

    def of(self, instance: Instance) -> Budget:
        return self.with_key(BudgetKey(instance.key, instance.spec.config_digest))

    def with_key(self, key: BudgetKey) -> Budget:
        return self._spent.get(key) or Budget(key)

    def spent(self) -> tuple[Budget, ...]:
        """Those that are not whole."""
        return tuple(self._spent.values())

    def put(self, changed: Budget) -> None:
        self._spent.pop(changed.key, None)
        if changed != budget.reset(changed):
            self._spent[changed.key] = changed
        if len(self._spent) > KEPT:
            del self._spent[next(iter(self._spent))]
