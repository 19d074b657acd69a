"""Logs for tools: the supervisor's own as one JSON object a line, and a unit's output likewise."""

from __future__ import annotations

import io
import json
import logging
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from supervisor.shared import logs
from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import FOREVER, Lines, Sections, free_port, service, shell, supervisor

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def objects(lines: Lines) -> list[dict[str, Any]]:
    return [json.loads(line) for line in str(lines).splitlines()]


@pytest.mark.seed("S30")
async def test_every_line_is_one_object_and_a_lost_controller_is_told_once(tmp_path: Path) -> None:
    """The controller refuses every connection; it is tried again and again, and told once in half a minute."""
    section = {
        "log_format": "json",
        "controller_url": [f"http://127.0.0.1:{free_port()}"],
        "pod_ip": "127.0.0.1",
        "port": 0,
        "job_name": "job",
    }
    units = {
        "engine": {**service(*FOREVER), "Engine": {"Launcher": "exec"}},
        "web": service(*shell("echo out; echo err >&2; exit 3"), Restart="no", StandardOutput="json"),
    }
    settings: Sections = {"supervisor": section, "auth": {"allow_anonymous": True}}
    async with supervisor(tmp_path, units, settings) as running:
        await running.stderr.saw('"failed: exited with code 3|-> failed')
        online = await running.stderr.saw('"probe_port": *(\\d+)')
        await running.stderr.saw("the controller does not answer")
        async with httpx.AsyncClient(timeout=TIMEOUT_SEC) as client:
            metrics = (await client.get(f"http://127.0.0.1:{online[1]}/metrics")).text
        events = await running.command("events", "--json")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
    lines = objects(running.stderr)
    assert all(TIMESTAMP.fullmatch(line["time"]) and line["level"] and line["message"] for line in lines)
    (failed,) = [line for line in lines if "-> failed" in line["message"]]
    assert (failed["level"], failed["unit"], isinstance(failed["pid"], int)) == ("WARNING", "web", True)
    assert len([line for line in lines if "the controller does not answer" in line["message"]]) == 1
    assert 'podvisor_controller_up{job_name="job",namespace="default"} 0.0' in metrics
    lost = [event for event in map(json.loads, events.stdout.splitlines()) if event["kind"] == "controller"]
    assert lost[0]["message"].startswith("waiting for the controller http://127.0.0.1:")
    written = {(line["unit"], line["stream"], line["message"]) for line in objects(running.stdout)}
    assert written == {("web", "stdout", "out"), ("web", "stderr", "err")}


async def test_what_a_thread_logs_is_written_by_the_loop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """On standard error it would wait for a reader, with the lock that the loop's next line needs."""
    stderr, written = io.StringIO(), list[bytes]()
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(stderr)])
    log = logging.getLogger("test")
    with logs.written_by(written.append):
        await trio.to_thread.run_sync(log.warning, "of a thread")
        await trio.testing.wait_all_tasks_blocked()
        log.warning("of the loop")
    assert (stderr.getvalue(), b"".join(written)) == ("", b"of a thread\nof the loop\n")
