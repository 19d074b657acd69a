"""In which namespace lies what a caller names, and what of a list a caller may see (design 8, Tenancy).

That a caller may do what it asks for there is checked by `routes.py`, for every route alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from controller.operators import NoSuchRun
from controller.registry import Registry
from supervisor.shared.http_app import caller
from supervisor.shared.tokens import Rights, Role

T = TypeVar("T")

Places = Mapping[str, Callable[[object], str]]
"""By the name of a path's variable or a message's field: the namespace of what has this id. Raise if nothing has."""


def places(registry: Registry) -> Places:
    """Raise NoSuchInstance and NoSuchRun."""

    def of_instance(instance_id: object) -> str:
        assert isinstance(instance_id, int)
        return registry.entry(instance_id).instance.key.namespace

    def of_run(run_id: object) -> str:
        for recovery in registry.recoveries():
            if recovery.run_id == run_id:
                return recovery.instance.namespace
        for view in registry.closed_runs:
            if view.id == run_id:
                return view.namespace
        raise NoSuchRun(f"no run has the id {run_id}")

    return {"instance_id": of_instance, "run_id": of_run}


def visible(found: Iterable[T], namespace_of: Callable[[T], str | None]) -> Iterator[T]:
    """What the caller may look at."""
    rights = caller()
    return (one for one in found if may_see(rights, namespace_of(one)))


def may_see(rights: Rights, namespace: str | None) -> bool:
    """What lies in no namespace is for who may look everywhere."""
    return rights.may_everywhere(Role.READ) if namespace is None else rights.may(Role.READ, namespace)
