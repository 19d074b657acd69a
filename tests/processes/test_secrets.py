"""Secrets of the pod: which units get them, and that nothing that is shown or told has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.running_supervisor import Sections, service, shell, supervisor

SECRET = "hf_do_not_tell"
SAYS = 'echo "$0 has $(printenv HF_TOKEN || echo none)"; exec sleep 600'


@pytest.mark.seed("S31")
async def test_the_engine_has_the_token_and_a_monitor_has_not(tmp_path: Path) -> None:
    engine: Sections = {**service(*shell(SAYS), "engine"), "Engine": {"Launcher": "exec"}}
    units = {
        "engine": engine,
        "exporter": service(*shell(SAYS), "exporter"),
        "uploader": service(*shell(SAYS), "uploader", PassEnvironment=["HF_TOKEN"]),
    }
    async with supervisor(tmp_path, units, HF_TOKEN=SECRET) as running:
        await running.stdout.saw(f"engine has {SECRET}")
        await running.stdout.saw("exporter has none")
        await running.stdout.saw(f"uploader has {SECRET}")


async def test_status_and_log_name_no_secret(tmp_path: Path) -> None:
    """In arguments, in Environment=, in what was inherited, and where a command cannot be executed."""
    inside: Sections = {"Service.Environment": {"KEY": SECRET}}
    engine = service(*shell("exec sleep 600"), "--api-key=${HF_TOKEN}")
    units = {
        "engine": {**engine, **inside, "Engine": {"Launcher": "exec"}},
        "typo": {**service("/no/such/program", "--api-key", SECRET, Restart="no"), **inside},
        "wrong": {**service(*shell("exit 3"), SECRET, Restart="no"), **inside},
    }
    async with supervisor(tmp_path, units, HF_TOKEN=SECRET) as running:
        await running.moved("typo", "cleaning", "failed")
        await running.moved("wrong", "cleaning", "failed")
        await running.online()
        shown = [await running.command("status", *more) for more in (("--json",), (), ("typo",), ("wrong", "--json"))]
        assert all(done.stdout for done in shown)
        assert SECRET not in "".join(done.stdout for done in shown)
        assert SECRET not in str(running.stderr)
