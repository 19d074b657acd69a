"""The image of deploy/Containerfile under a real container runtime: its default seccomp profile and capabilities."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
import trio
import yaml

from tests.deploy.images import Python
from tests.deploy.podman import PROJECT, Podman
from tests.deploy.rendered import Manifests
from tests.deploy.validation import check_builtin
from tests.support.real_processes import TIMEOUT_SEC, told
from tests.support.running_supervisor import FOREVER, Sections, service, shell, toml

POD = PROJECT / "deploy" / "pod.yaml"
IN_ENGINE_IMAGE = """
ARG BASE
ARG PODVISOR
FROM ${PODVISOR} AS podvisor
FROM ${BASE}
COPY --from=podvisor /opt/podvisor /opt/podvisor
ENTRYPOINT ["/opt/podvisor/bin/podvisor", "run"]
"""
EVERYWHERE = f" 00000000:{1027:04X} 00000000:0000 0A "
"""A line of proc_net_tcp(5): something listens on the probe port at all addresses."""
READ_ONLY = ("--read-only", "--tmpfs", "/run/podvisor:mode=1777")
ORPHANS = 20
ABANDON = f"i=0; while [ $i -lt {ORPHANS} ]; do (sleep 0 &); i=$((i + 1)); done; "
ZOMBIES = """
import os, sys, time
deadline = time.monotonic() + float(sys.argv[2])
while True:
    states = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            states.append(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0])
        except OSError:
            pass  # it has ended meanwhile
    if states.count("Z") == int(sys.argv[1]) or time.monotonic() > deadline:
        sys.exit(f"{states.count('Z')} zombies")
    time.sleep(0.01)
"""
READY = """
import sys, time, urllib.request
deadline = time.monotonic() + float(sys.argv[1])
while True:
    try:
        sys.exit(0 if urllib.request.urlopen("http://127.0.0.1:1027/readyz").status == 200 else 1)
    except OSError as error:
        if time.monotonic() > deadline:
            sys.exit(f"not ready: {error}")
    time.sleep(0.05)
"""


def mounted(directory: Path, units: dict[str, Sections]) -> tuple[str, ...]:
    """The unit files where the image looks for them."""
    directory.mkdir()
    for name, sections in units.items():
        (directory / f"{name}.toml").write_text(toml(sections))
    directory.chmod(0o755)
    return ("--volume", f"{directory}:/etc/podvisor/units:ro")


def writable(directory: Path) -> Path:
    """For every user: a bind mount has the modes of this machine."""
    directory.mkdir()
    directory.chmod(0o777)
    return directory


def zombies(podman: Podman, name: str, expected: int) -> str:
    """How many, as soon as there are so many."""
    return podman("exec", name, "python3", "-c", ZOMBIES, str(expected), str(TIMEOUT_SEC), check=False).stderr.strip()


@pytest.mark.seed("S32")
async def test_it_is_pid_1_of_any_user_on_a_read_only_root(podman: Podman, image: str, tmp_path: Path) -> None:
    units = mounted(tmp_path / "units", {"web": service(*FOREVER)})
    async with podman.running("first", *READ_ONLY, *units, image) as running:
        await running.stderr.saw(" online ")
        status = podman("exec", "first", "cat", "/proc/1/status").stdout
        facts = dict(re.findall(r"^(\w+):\t(.*)$", status, re.MULTILINE))
        assert facts["Uid"].split()[0] == "65532"
        assert facts["Seccomp"] == "2", "filtered"
        assert int(facts["CapEff"], 16) == 0
        assert int(facts["CapBnd"], 16) != 0, "the runtime's default, nothing was dropped"
        assert re.search(r"web +active ", podman("exec", "first", "podvisor", "status").stdout)
        refused = podman("exec", "first", "sh", "-c", "echo > /opt/podvisor/lib/changed", check=False)
        assert "Read-only file system" in refused.stderr
        assert not running.stderr.matching("Traceback| warning ")


async def test_it_reaps_what_others_abandon(podman: Podman, image: str, base: str, tmp_path: Path) -> None:
    units = mounted(tmp_path / "units", {"parent": service(*shell(f"{ABANDON} exec sleep 600"), KillMode="process")})
    async with podman.running("reaping", *READ_ONLY, *units, image) as running:
        await running.stderr.saw(" online ")
        podman("exec", "reaping", "sh", "-c", ABANDON)
        assert zombies(podman, "reaping", 0) == "0 zombies"
    # sleep(1) reaps nobody: what the test above would see if podvisor did not either.
    async with podman.running("control", base, "sh", "-c", "echo runs; exec sleep 600") as running:
        await running.stdout.saw("runs")
        podman("exec", "control", "sh", "-c", ABANDON)
        assert zombies(podman, "control", ORPHANS) == f"{ORPHANS} zombies"


async def test_sigterm_ends_it_within_the_time_that_verify_asks_for(podman: Podman, image: str, tmp_path: Path) -> None:
    deaf = service(
        *shell("trap '' TERM; echo deaf > /run/podvisor/deaf; while :; do sleep 1; done"), TimeoutStopSec="1s"
    )
    units = mounted(tmp_path / "units", {"deaf": deaf, "web": service(*FOREVER)})
    volume = writable(tmp_path / "run")
    async with podman.running("ending", *READ_ONLY[:1], f"--volume={volume}:/run/podvisor", *units, image) as running:
        await running.stderr.saw(" online ")
        with trio.fail_after(TIMEOUT_SEC):
            await told(volume / "deaf")
        verified = podman("exec", "ending", "podvisor", "verify", "--json", "/etc/podvisor/units").stdout
        grace_period = json.loads(verified)["grace_period_sec"]
        patience = grace_period * float(os.environ.get("PODVISOR_TEST_TIMEOUT_SCALE", "1"))
        podman("stop", "--time", str(round(patience)), "ending")
        await running.stderr.saw(r" ended in ")
        assert podman.state("ending")["ExitCode"] == 0, "137 would be podman's SIGKILL"


async def test_255_gives_it_a_new_container_life(podman: Podman, image: str, tmp_path: Path) -> None:
    """As a kubelet restarts the container; podman's own restart policy stands for it."""
    script = "echo life >> /run/podvisor/lives; test -e /run/podvisor/before && exec sleep 600; "
    script += "echo > /run/podvisor/before; exit 1"
    once = service(*shell(script), Restart="always", StartLimitBurst=1, StartLimitAction="exit")
    units = mounted(tmp_path / "units", {"once": once})
    volume = writable(tmp_path / "run")
    arguments = (*READ_ONLY[:1], "--restart=on-failure", f"--volume={volume}:/run/podvisor", *units, image)
    async with podman.running("restarted", *arguments):
        with trio.fail_after(TIMEOUT_SEC):
            assert await told(volume / "lives", lines=2) == ["life", "life"]
        state = podman.state("restarted")
        assert (state["Running"], state["RestartCount"]) == (True, 1)
        assert podman.log("restarted").count("ending with exit code 255") == 1


async def test_the_image_is_the_controller_too(podman: Podman, image: str) -> None:
    variables = ("--env", "PODVISOR_CONTROLLER__STORE=memory")
    async with podman.running("controller", "--read-only", *variables, image, "controller") as running:
        await running.stderr.saw("the controller serves")
        podman("stop", "--time", "60", "controller")
        await running.stderr.saw("has stopped")
        assert podman.state("controller")["ExitCode"] == 0


async def test_the_prefix_works_in_an_engines_image_with_another_python(
    podman: Podman, image: str, another_python: Python, tmp_path: Path
) -> None:
    containerfile = tmp_path / "Containerfile"
    containerfile.write_text(IN_ENGINE_IMAGE)
    other = podman.base(another_python)
    engine = podman.build("localhost/engine", other, f"--build-arg=PODVISOR={image}", containerfile=containerfile)
    version = "import sys; print('%d.%d' % sys.version_info[:2])"
    async with podman.running("copied", "--read-only", engine, "--", "python3", "-c", version) as running:
        await running.stdout.saw(f"^{re.escape(another_python.version)}$")
    assert podman("run", "--rm", "--network", "none", engine, "--", "sh", "-c", "exit 7", check=False).returncode == 7
    units = mounted(tmp_path / "units", {"web": service(*FOREVER)})
    async with podman.running("engine", *READ_ONLY, *units, engine) as running:
        await running.stderr.saw(" online ")
        assert re.search(r"web +active ", podman("exec", "engine", "/opt/podvisor/bin/podvisor", "status").stdout)


def test_the_one_file_runs_on_a_read_only_root_but_not_from_where_nothing_may_be_executed(
    podman: Podman, base: str, pyz: Path
) -> None:
    into = ("run", "--rm", "--network", "none", "--read-only", "--user", "65531", "--volume", f"{pyz}:/podvisor.pyz:ro")
    command = (base, "python3", "-I", "/podvisor.pyz", "run", "--", "sh", "-c", "exit 5")
    assert podman(*into, *command, check=False).returncode == 5
    refused = podman(
        *into, "--tmpfs", "/cache:noexec,mode=1777", "--env=PODVISOR_CACHE=/cache/own", *command, check=False
    )
    assert refused.returncode == 78
    assert "/cache/own: is mounted noexec" in refused.stderr


def test_the_shipped_pod_is_valid(tmp_path: Path) -> None:
    with POD.open() as text:
        check_builtin(Manifests(tuple(yaml.safe_load_all(text))), tmp_path)


async def test_the_shipped_pod_becomes_ready_and_its_container_is_restarted_after_a_kill(
    podman: Podman, image: str
) -> None:
    assert image in POD.read_text()
    container = "podvisor-engine"
    podman("kube", "play", "--network", "none", str(POD))
    try:
        before = ready(podman, container)
        status = podman("exec", container, "cat", "/proc/1/status").stdout
        assert re.search(r"^CapBnd:\t0+$", status, re.MULTILINE)
        assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
        assert EVERYWHERE in podman("exec", container, "cat", "/proc/net/tcp").stdout, (
            "the kubelet probes the pod's address"
        )
        os.kill(int(str(podman.state(container)["Pid"])), signal.SIGKILL)
        with trio.fail_after(TIMEOUT_SEC):
            while not (podman.state(container)["RestartCount"] and podman.state(container)["Running"]):
                await trio.sleep(0.05)  # what podman is doing about it: there is no event to wait for
        after = ready(podman, container)
        assert before["boot_id"] != after["boot_id"]
        assert after["previous_container"] == "killed", "its emptyDir outlives the container"
        assert "Traceback" not in podman.log(container)
    finally:
        podman("kube", "down", str(POD), check=False)


def ready(podman: Podman, container: str) -> dict[str, object]:
    """What the supervisor says of itself, once its readiness probe would pass."""
    podman("exec", container, "python3", "-c", READY, str(TIMEOUT_SEC))
    told = json.loads(podman("exec", container, "podvisor", "status", "--json").stdout)
    return dict(told["supervisor"])
