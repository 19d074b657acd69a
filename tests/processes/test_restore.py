"""RestoreExec under `podvisor run`: a start from a snapshot, and the cold one that follows where that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.running_supervisor import Sections, free_port, service, shell, supervisor

COLD = "echo cold; echo ready; exec sleep 600"


def engine(restore: str | list[str]) -> Sections:
    argv = shell(restore) if isinstance(restore, str) else restore
    return {
        **service(*shell(COLD), Environment=["WHO=the engine"]),
        "Engine": {"Launcher": "exec", "BasePort": free_port(), "RestoreExec": argv},
        "Readiness": {"LogLine": "ready"},
    }


@pytest.mark.seed("S10")
async def test_while_a_snapshot_is_restored_a_relaunch_is_refused_and_then_it_is_not(tmp_path: Path) -> None:
    go = tmp_path / "go"
    restore = f"echo restoring $WHO; while [ ! -e {go} ]; do sleep 0.05; done; echo ready; exec sleep 600"
    async with supervisor(tmp_path, {"engine": engine(restore)}) as running:
        await running.stdout.saw("restoring the engine")
        assert (await running.units())["engine"].sub_state == "restoring"
        refused = await running.command("relaunch")
        assert refused.returncode != 0
        assert "a snapshot of engine is being restored" in refused.stderr
        go.touch()
        await running.moved("engine", "restoring", "ready")
        assert (await running.command("relaunch")).returncode == 0
        await running.moved("engine", "restoring", "ready", 2)
    assert running.stdout.matching("cold") == []


@pytest.mark.parametrize(
    "restore, why",
    [
        ("echo no such image >&2; exit 3", "exited with code 3 before it was ready"),
        (["/nowhere/restore"], "cannot execute"),
    ],
)
async def test_a_snapshot_that_cannot_be_restored_costs_a_log_line(
    tmp_path: Path, restore: str | list[str], why: str
) -> None:
    async with supervisor(tmp_path, {"engine": engine(restore)}) as running:
        await running.moved("engine", "loading", "ready")
        line = await running.stderr.saw(
            r"warning engine: (restoring|start) -> .*: RestoreExec failed: .*; starting cold"
        )
        assert why in line.string
        view = (await running.units())["engine"]
        assert (view.sub_state, view.restarts) == ("ready", 0)
