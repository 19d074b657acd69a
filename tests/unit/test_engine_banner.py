"""The line in the container's log between two lives of an engine (seed S21)."""

from __future__ import annotations

import pytest

from supervisor.engine.model.banner import RULE, banner

WHEN = "2026-07-01T12:00:00.000Z"


@pytest.mark.seed("S21")
def test_one_line_between_two_rules() -> None:
    text = banner(3, WHEN, epoch=5, instance_id=7, reason="engine 0 on 10.0.0.1 was killed by SIGKILL")
    assert text == (
        f"{RULE}\n"
        f"[ENGINE RELAUNCH #3] {WHEN} epoch=5 instance=7 reason=engine 0 on 10.0.0.1 was killed by SIGKILL\n"
        f"{RULE}\n"
    )


@pytest.mark.seed("S21")
@pytest.mark.parametrize("reason", ["first\nsecond", "a\r\n[ENGINE RELAUNCH #9] forged", "tab\tand  spaces\n"])
def test_a_reason_from_the_network_stays_on_its_line(reason: str) -> None:
    text = banner(1, WHEN, epoch=1, instance_id=1, reason=reason)
    assert len(text.splitlines()) == 3
    assert text.splitlines()[1].endswith(f"reason={' '.join(reason.split())}")
