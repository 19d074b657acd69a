"""What `--wait` makes of a unit that goes nowhere any more."""

from __future__ import annotations

import pytest

from supervisor import wire
from supervisor.cli.client import CommandFailed
from supervisor.cli.unit_command import ready


def at_rest(kind: str, state: str, sub_state: str, reason: str = "") -> wire.UnitView:
    return wire.UnitView(
        name="it", type=kind, state=state, sub_state=sub_state, pid=None, since="", restarts=0, reason=reason
    )


@pytest.mark.parametrize(
    "view",
    [
        at_rest("engine", "active", "ready"),
        at_rest("oneshot", "inactive", "dead"),
        at_rest("exec", "inactive", "dead", "skipped: ConditionPathExists=/models"),
    ],
)
def test_what_runs_or_has_no_more_to_do_is_ready(view: wire.UnitView) -> None:
    assert ready(None, view) is view


@pytest.mark.parametrize(
    "view, told",
    [
        (at_rest("engine", "inactive", "dead", "stopped by operator"), r"inactive \(dead\): stopped by operator"),
        (at_rest("exec", "failed", "failed", "exited with code 3"), r"failed \(failed\): exited with code 3"),
        (at_rest("exec", "activating", "auto-restart", "killed by SIGKILL"), "killed by SIGKILL"),
    ],
)
def test_an_engine_that_is_down_is_not_nor_what_has_failed(view: wire.UnitView, told: str) -> None:
    with pytest.raises(CommandFailed, match=told):
        ready(None, view)
