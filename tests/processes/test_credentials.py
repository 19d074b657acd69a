"""A secret of LoadCredential on real processes: the unit has it, and nothing that people are shown does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.running_supervisor import FOREVER, service, shell, supervisor

FIRST, SECOND = "first-secret-value", "second-secret-value"


@pytest.mark.parametrize("output", ["prefix", "pass", "json"])
async def test_the_unit_has_it_and_nothing_that_is_shown_does(output: str, tmp_path: Path) -> None:
    path, kept = tmp_path / "token", tmp_path / "kept"
    path.write_text(FIRST + "\n")
    script = shell(f'echo "$TOKEN" >> {kept}; echo "I am $TOKEN"; exec sleep 600')
    probe = {"Exec": ["/no/such/${CREDENTIAL:token}"], "PeriodSec": 0.1, "FailureThreshold": 1, "OnFailure": "restart"}
    leaky = service(
        *script,
        LoadCredential=[f"token:{path}"],
        Environment=["TOKEN=${CREDENTIAL:token}"],
        StandardOutput=output,
        Restart="no",
    )
    units = {
        "leaky": leaky,
        "sick": {**service(*FOREVER, LoadCredential=[f"token:{path}"], Restart="no"), "Liveness": probe},
    }
    async with supervisor(tmp_path, units) as running:
        await running.stdout.saw("I am ")
        await running.moved("sick", "cleaning|stop-term|stop-kill", "failed")
        await running.online()
        path.write_text(SECOND)
        assert (await running.command("restart", "leaky")).returncode == 0
        await running.stdout.saw("I am ", 2)
        os.kill((await running.units())["leaky"].pid or 0, signal.SIGKILL)
        await running.moved("leaky", "cleaning", "failed")
        assert kept.read_text().split() == [FIRST, SECOND]
        running.signal(signal.SIGQUIT)
        shown = [(await running.command(*words)).stdout for words in (["status", "--json"], ["logs", "leaky"])]
        async with running.api() as client:
            shown += [(await client.get(f"/v1/units/{name}/exits")).text for name in units]
        assert "[redacted token]" in shown[1]
        assert "[redacted token]" in shown[2]
        assert "[redacted token]" in shown[3]
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        shown.append(str(running.stderr))
        if output != "pass":
            shown.append(str(running.stdout))
    for text in shown:
        assert FIRST not in text
        assert SECOND not in text


async def test_a_secret_that_is_missing_fails_the_start_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "token"
    unit = service(*FOREVER, LoadCredential=[f"token:{path}"], RestartSec="50ms", RestartMaxDelaySec="50ms")
    async with supervisor(tmp_path, {"web": unit}) as running:
        match = await running.stderr.saw(r"web: start -> \S+: (.*)")
        assert f"LoadCredential token: cannot read {path}: No such file or directory" in match[1]
        path.write_text("here it is")
        assert await running.started("web") > 0
