"""Which ports an epoch's ranks meet on: a block of their own, so that a new rank never meets an old one.

The controller takes the first port of the block into its start command; what an engine needs beside it, its launcher
counts on from there. All ranks so come to the same ports without asking each other.
"""

from __future__ import annotations

from collections.abc import Sequence

PORTS_PER_EPOCH = 10
"""As many as any engine needs: SGLang takes seven (`launchers/sglang.py`)."""


def block_size(ports: Sequence[int]) -> int:
    """How many of `ports` one epoch has; a range too small for two whole blocks still rotates."""
    return max(1, min(PORTS_PER_EPOCH, len(ports) // 2))


def rendezvous_port(ports: Sequence[int], epoch: int) -> int:
    """The first port of the epoch's block. Neighbouring epochs share none, unless there is but one port."""
    size = block_size(ports)
    return ports[epoch % (len(ports) // size) * size]
