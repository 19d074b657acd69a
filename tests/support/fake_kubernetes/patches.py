"""Merge patch (RFC 7386), and strategic merge patch: lists of objects are merged by a key of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ownerReferences": "uid",
    "volumes": "name",
    "readinessGates": "conditionType",
}
"""Of the lists that anybody patches here, as the API's types declare them."""


def merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def strategic_merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, list) and key in MERGE_KEYS:
            merged[key] = _merge_list(merged.get(key) or [], value, MERGE_KEYS[key])
        else:
            merged[key] = strategic_merge(merged.get(key), value)
    return merged


def _merge_list(target: list[Json], patch: list[Json], by: str) -> list[Json]:
    merged = {item[by]: item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            merged.pop(item[by], None)
        else:
            merged[item[by]] = strategic_merge(merged.get(item[by], {}), item)
    return list(merged.values())
