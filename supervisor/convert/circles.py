"""Units that wait for each other in a circle: systemd drops one of the jobs at every start, our parser refuses them."""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.convert.drafts import Draft
from supervisor.convert.remarks import lost
from supervisor.unit.graph import Graph


def cut_circles(drafts: Sequence[Draft]) -> None:
    """Take orders away, each with a remark, until no circle is left. All instances of a template count as one unit."""
    by_name = {draft.name: draft for draft in drafts}
    while circle := Graph(after=_after(by_name)).cycle():
        name, earlier = circle[0], circle[1 % len(circle)]
        words = " after ".join((*circle, name))
        _forget(by_name[name], "After", earlier, words)
        _forget(by_name[earlier], "Before", name, words)


def _after(drafts: dict[str, Draft]) -> dict[str, frozenset[str]]:
    after: dict[str, set[str]] = {name: set() for name in drafts}
    for name, draft in drafts.items():
        after[name] |= {_node(each) for each in _names(draft, "After")} & drafts.keys()
        for later in {_node(each) for each in _names(draft, "Before")} & drafts.keys():
            after[later].add(name)
    return {name: frozenset(earlier) for name, earlier in after.items()}


def _forget(draft: Draft, key: str, other: str, circle: str) -> None:
    names = _names(draft, key)
    kept = [name for name in names if _node(name) != other]
    if len(kept) == len(names):
        return
    draft.remarks.append(lost(draft.places["Unit", key], f"{other}: they would wait in a circle: {circle}"))
    draft.tables["Unit"][key] = kept
    if not kept:
        del draft.tables["Unit"][key]


def _names(draft: Draft, key: str) -> list[str]:
    names = draft.tables.get("Unit", {}).get(key, [])
    assert isinstance(names, list)
    return [str(name) for name in names]


def _node(name: str) -> str:
    """`x@` for `x@1` and `x@%i`."""
    stem, at, _ = name.partition("@")
    return stem + at
