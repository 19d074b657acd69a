"""Keys that are known but not carried out yet: refused, because ignoring them would be a lie.

A row is the key and the values of it that may stand in a file all the same, because they ask for nothing that is
missing. Whoever implements a key deletes its row.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.unit.values import shown

NOT_CARRIED_OUT: Mapping[str, tuple[object, ...]] = {
    "Unit.BindsTo": (),
    "Unit.PartOf": (),
    "Unit.Conflicts": (),
    "Unit.OnDependencyRestart": ("ignore",),
    "Service.LoadCredential": (),
}


def refusal(key: str, found: object) -> str | None:
    """Why `found` cannot be carried out; None if it can."""
    carried_out = NOT_CARRIED_OUT.get(key)
    if carried_out is None or found in carried_out:
        return None
    known = f"; {', '.join(shown(value) for value in carried_out)} would be" if carried_out else ""
    if isinstance(found, dict):
        return f"known, but not carried out by this version{known}"
    return f"{shown(found)} is known, but not carried out by this version{known}"
