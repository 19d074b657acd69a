"""A run as tools see it (wire.RunView)."""

from __future__ import annotations

from collections.abc import Callable

from controller.model.relaunch.run import Run
from supervisor.wire import RunView


def view(run: Run, to_wall: Callable[[float], str]) -> RunView:
    """`to_wall` turns a monotonic time into RFC 3339 UTC."""
    raise NotImplementedError
