"""The line between two lives of an engine in a container's log (seed S21)."""

from __future__ import annotations

RULE = "=" * 96


def banner(number: int, when: str, *, epoch: int, instance_id: int, reason: str) -> str:
    """Goes straight to the container's stdout, after the old engine is gone and before the new one starts."""
    one_line = " ".join(reason.split())
    line = f"[ENGINE RELAUNCH #{number}] {when} epoch={epoch} instance={instance_id} reason={one_line}"
    return f"{RULE}\n{line}\n{RULE}\n"
