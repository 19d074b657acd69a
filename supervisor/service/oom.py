"""Whether the kernel has killed somebody of our cgroup for memory: the only trace an OOM kill leaves inside."""

from __future__ import annotations

from pathlib import Path

_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))
"""cgroup v2 and v1, as a container sees its own."""


def oom_kills(counters: tuple[Path, ...] = _COUNTERS) -> int | None:
    """How many processes were killed so far; None if it cannot be known here."""
    for path in counters:
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for line in lines:
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.isdecimal():
                return int(value)
    return None
