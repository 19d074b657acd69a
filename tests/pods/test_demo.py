"""`podvisor demo` as a user runs it: it shows and checks a relaunch, and it says so when one does not work."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from controller.demo.cluster import PODVISOR
from controller.demo.engines import LLAMA_SERVER, Engines

TIMEOUT_SEC = 150.0

WORKS_ONCE = """#!/bin/sh
mark="{directory}/$JOB_NAME-$NODE_RANK"
[ -e "$mark" ] && exit 3
: >"$mark"
exec "{program}" "$@"
"""


def demo(*options: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PODVISOR, "demo", *options],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SEC,
        check=False,
    )


def marks(output: str) -> tuple[int, int]:
    return output.count("✓"), output.count("✗")


@pytest.mark.pods
@pytest.mark.seed("S27")
def test_in_namespaces_all_claims_hold(namespaces: None) -> None:
    done = demo()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "podvisor is PID 1 in both" in done.stdout
    assert "All 4 claims held" in done.stdout
    assert marks(done.stdout)[1] == 0


def test_as_plain_processes_all_claims_hold() -> None:
    done = demo("--plain")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plain processes" in done.stdout
    assert marks(done.stdout)[1] == 0
    assert "\x1b" not in done.stdout


@pytest.mark.engines
def test_the_silent_half(namespaces: None, engines: Engines) -> None:
    if LLAMA_SERVER in engines.missing:
        pytest.skip(engines.missing[LLAMA_SERVER])
    done = demo("--act", "silent-half")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    assert "the engine of pod1" in done.stdout


def test_without_real_engines_it_says_so(tmp_path: Path) -> None:
    bare = {"PODVISOR_ENGINES": str(tmp_path), "PATH": "/nowhere"}
    done = demo("--plain", environment=bare)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a small HTTP engine of ours, not a real one" in done.stdout
    refused = demo("--plain", "--act", "silent-half", environment=bare)
    assert refused.returncode == 1
    assert "needs real engines" in refused.stdout


def test_a_reader_that_goes_ends_it_quietly_and_nothing_is_left(tmp_path: Path) -> None:
    environment = {**os.environ, "PODVISOR_ENGINES": str(tmp_path), "PATH": "/nowhere", "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [PODVISOR, "demo", "--plain"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert "podvisor" in running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == ""
        assert running.wait(TIMEOUT_SEC) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_does_not_come_back_breaks_the_claims(tmp_path: Path, engines: Engines) -> None:
    if LLAMA_SERVER in engines.missing:
        pytest.skip(engines.missing[LLAMA_SERVER])
    sabotaged = tmp_path / "engines"
    (sabotaged / "bin").mkdir(parents=True)
    for name, program in engines.programs.items():
        (sabotaged / "bin" / name).symlink_to(program)
    broken = sabotaged / "bin" / LLAMA_SERVER
    broken.unlink()
    broken.write_text(WORKS_ONCE.format(directory=tmp_path, program=engines.programs[LLAMA_SERVER]))
    broken.chmod(0o755)
    (sabotaged / "models").symlink_to(engines.models)
    logs = tmp_path / "logs"

    done = demo("--plain", "--keep-logs", str(logs), environment={"PODVISOR_ENGINES": str(sabotaged)})

    assert done.returncode == 1, done.stdout + done.stderr
    assert "✗ the instance is ACTIVE in epoch 2: INACTIVE" in done.stdout
    assert "3" in done.stdout.split("Claims ")[-1].split(" did not hold")[0]
    assert f"The logs are in {logs}" in done.stdout
    assert "relaunch failed while loading: the engine d" in (logs / "pod0" / "life-0.log").read_text()
