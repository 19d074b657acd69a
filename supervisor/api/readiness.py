"""What the kubelet's probes are told (design 8)."""

from __future__ import annotations

import msgspec


class Readiness(msgspec.Struct, frozen=True):
    started: bool
    """All units were active once, or the supervisor is registered."""
    ready: bool
    """All endpoints are NORMAL and nobody is leaving."""
    why_not: str = ""
