"""The pods, the kubelet stand-in and the fallback engine are what the other tests take them for."""

import os
import signal
import sys
from dataclasses import replace
from functools import partial
from operator import eq
from pathlib import Path

import httpx
import pytest
import trio

from controller.demo.kubelet import (
    BackOff,
    ContainerExited,
    ContainerSpec,
    ContainerStarted,
    Kubelet,
    ProbeKills,
    ReadinessChanged,
    RestartWaits,
    restart_delay,
)
from controller.demo.kubelet_probe import HttpProbe, Streak, observe
from controller.demo.pod import ContainerStartError
from controller.demo.port_forward import forward
from controller.demo.processes import open_process_network
from tests.pods.harness import FALLBACK_ENGINE, TIMEOUT_SEC, PodsFactory, eventually, fallback_engine

SLEEPER = ["sleep", "1000"]


async def answers(url: str) -> bool:
    async with httpx.AsyncClient(timeout=TIMEOUT_SEC) as client:
        try:
            return (await client.get(url)).is_success
        except httpx.ConnectError:
            return False


async def first_answer(url: str) -> None:
    await eventually(lambda: answers(url), lambda yes: yes, f"an answer from {url}")


async def test_the_first_process_is_pid_1_of_its_own_world(pods: PodsFactory) -> None:
    network = await pods(1)
    pod = network.pods[0]
    program = """
import os, socket
print(os.getpid(), socket.gethostname(), sum(name.isdigit() for name in os.listdir("/proc")))
"""
    async with pod.container([sys.executable, "-c", program], log=pod.logs / "log") as container:
        assert await container.wait() == 0
        assert container.log.read_text().split() == ["1", "pod0", "1"]


@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 9", 9), ("exit 255", 255)])
async def test_the_exit_code_is_told(pods: PodsFactory, script: str, code: int) -> None:
    network = await pods(1)
    pod = network.pods[0]
    async with pod.container(["sh", "-c", script], log=pod.logs / "log") as container:
        assert await container.wait() == code
        assert container.exit_code == code


async def test_sigkill_is_told_as_137_and_takes_the_daemons_along(pods: PodsFactory) -> None:
    network = await pods(1)
    pod = network.pods[0]
    program = [sys.executable, str(FALLBACK_ENGINE), "--host=0.0.0.0", "--port=8000", "--grandchild-holds-port"]
    async with pod.container(program, log=pod.logs / "log") as container:
        await first_answer(f"http://{pod.address}:8000/health")
        container.kill(signal.SIGKILL)
        assert await container.wait() == 137
        assert not await answers(f"http://{pod.address}:8000/health")


async def test_sigterm_reaches_only_a_pid_1_that_handles_it(pods: PodsFactory) -> None:
    network = await pods(1)
    pod = network.pods[0]
    async with pod.container(SLEEPER, log=pod.logs / "deaf") as container:
        container.kill(signal.SIGTERM)
        assert (await container.exec(["true"])).exit_code == 0
        assert container.exit_code is None
        container.kill(signal.SIGKILL)
        assert await container.wait() == 137
    trapping = ["sh", "-c", "trap 'exit 5' TERM; echo ready; sleep 1000 & wait"]
    async with pod.container(trapping, log=pod.logs / "hearing") as container:
        await eventually(lambda: _text(container.log), lambda text: "ready" in text, "the trap")
        container.kill(signal.SIGTERM)
        assert await container.wait() == 5


async def test_exec_runs_beside_pid_1(pods: PodsFactory) -> None:
    network = await pods(1)
    pod = network.pods[0]
    async with pod.container(SLEEPER, log=pod.logs / "log") as container:
        # In the middle of its execve, PID 1 has no arguments.
        done = await eventually(
            lambda: container.exec(["sh", "-c", "hostname; tr '\\0' ' ' </proc/1/cmdline; exit 4"]),
            lambda done: done.output.split() == ["pod0", *SLEEPER],
            "the pod's name and what PID 1 executes",
        )
    assert done.exit_code == 4


async def test_a_container_that_cannot_be_set_up_says_why(pods: PodsFactory) -> None:
    network = await pods(1)
    pod = network.pods[0]
    pod.volume.rmdir()
    with pytest.raises(ContainerStartError, match="volume"):
        async with pod.container(SLEEPER, log=pod.logs / "log"):
            pass


async def test_a_restart_keeps_address_and_volume_and_loses_the_file_system(
    pods: PodsFactory, kubelet: Kubelet
) -> None:
    network = await pods(1)
    pod = network.pods[0]
    leave_traces = f"ip -br addr show eth0; ls /root/trace {pod.volume}; touch /root/trace {pod.volume}/kept; exit 3"
    kept = await kubelet.start(pod, ContainerSpec(["sh", "-c", leave_traces]))
    await kubelet.timeline.wait_for(lambda event: isinstance(event, ContainerExited) and event.life == 1)
    first, second = (log.read_text() for log in kept.logs[:2])
    assert pod.address in first
    assert pod.address in second
    assert "kept" not in first
    assert "kept" in second
    assert "No such file" in second
    assert kept.exit_codes[:2] == [3, 3]


async def test_the_kubelet_backs_off_and_records_it(pods: PodsFactory, kubelet: Kubelet) -> None:
    network = await pods(1)
    kept = await kubelet.start(network.pods[0], ContainerSpec(["sh", "-c", "exit 7"]))
    with trio.fail_after(TIMEOUT_SEC):
        await kubelet.timeline.wait_for(lambda event: isinstance(event, ContainerStarted) and event.life == 3)
    waits = [entry.event.delay_sec for entry in kubelet.timeline.entries if isinstance(entry.event, RestartWaits)]
    assert waits[:3] == [0.0, 0.05, 0.1]
    assert kept.restart_count >= 3
    assert set(kept.exit_codes) == {7}


async def test_removal_is_term_then_grace_then_kill(pods: PodsFactory, kubelet: Kubelet) -> None:
    network = await pods(2)
    serving = f"{sys.executable} -m http.server 8000 >/dev/null 2>&1 & server=$!"
    trapping = f"{serving}; trap 'echo asked; kill $server' TERM; while :; do sleep 1000 & wait; done"
    started = HttpProbe(port=8000, path="/", period_sec=0.05, failure_threshold=1000)
    alive = replace(started, failure_threshold=1)
    gentle = await kubelet.start(network.pods[0], fallback_engine(network.pods[0], "--exit-code=0"))
    stubborn = await kubelet.start(
        network.pods[1], ContainerSpec(["sh", "-c", trapping], grace_period_sec=0.3, startup=started, liveness=alive)
    )
    await first_answer(f"http://{network.pods[0].address}:8000/health")
    with trio.fail_after(TIMEOUT_SEC):
        await kubelet.timeline.wait_for(partial(eq, ReadinessChanged("pod1", True)))
    await gentle.remove()
    await stubborn.remove()
    assert gentle.exit_codes == [0]
    assert stubborn.exit_codes == [137]
    assert stubborn.logs[0].read_text().count("asked") == 1, "its liveness, which failed then, is asked no more"
    assert gentle.restart_count == stubborn.restart_count == 0


async def test_probes_gate_readiness_and_restart_the_stuck(pods: PodsFactory, kubelet: Kubelet) -> None:
    network = await pods(1)
    pod = network.pods[0]
    quick = HttpProbe(port=8000, path="/health", period_sec=0.05, failure_threshold=100, timeout_sec=5)
    liveness = HttpProbe(port=8000, path="/health", period_sec=0.05, failure_threshold=2, timeout_sec=0.5)
    engine = fallback_engine(
        pod, "--load-sec=0.3", startup=quick, readiness=quick, liveness=liveness, grace_period_sec=0.1
    )
    kept = await kubelet.start(pod, engine)
    with trio.fail_after(TIMEOUT_SEC):
        await kubelet.timeline.wait_for(lambda event: event == ReadinessChanged("pod0", True))
        assert kept.container is not None
        kept.container.kill(signal.SIGSTOP)
        killed = await kubelet.timeline.wait_for(lambda event: event == ProbeKills("pod0", "liveness"))
        await kubelet.timeline.wait_for(lambda event: event == ReadinessChanged("pod0", True), since=killed.number)
    assert kept.exit_codes == [137]
    assert kept.restart_count == 1


async def test_a_cut_link_is_silent_and_heals(pods: PodsFactory) -> None:
    network = await pods(1)
    pod = network.pods[0]
    url = f"http://{pod.address}:8000/health"
    async with pod.container(fallback_engine(pod).argv, log=pod.logs / "log"):
        await first_answer(url)
        await network.cut(pod)
        async with httpx.AsyncClient(timeout=0.5) as client:
            with pytest.raises(httpx.ConnectTimeout):  # silence: a refusal would be a ConnectError
                await client.get(url)
        await network.heal(pod)
        await first_answer(url)


async def test_a_pair_is_cut_while_both_see_the_hub(pods: PodsFactory) -> None:
    network = await pods(2)
    one, other = network.pods
    connect = f"import socket; socket.create_connection(({other.address!r}, 8000), 0.5)"
    async with (
        one.container(fallback_engine(one).argv, log=one.logs / "log") as inside,
        other.container(fallback_engine(other).argv, log=other.logs / "log"),
    ):
        await first_answer(f"http://{one.address}:8000/health")
        await first_answer(f"http://{other.address}:8000/health")
        await network.cut_pair(one, other)
        await network.cut_pair(one, other)
        assert "TimeoutError" in (await inside.exec([sys.executable, "-c", connect])).output
        assert await answers(f"http://{one.address}:8000/health")
        assert await answers(f"http://{other.address}:8000/health")
        await network.heal_pair(one, other)
        assert (await inside.exec([sys.executable, "-c", connect])).exit_code == 0


async def test_one_direction_can_be_cut_alone(pods: PodsFactory) -> None:
    network = await pods(1)
    pod, hub = network.pods[0], network.hub
    await network.cut_pair(hub, pod, one_way=True)
    listening = trio.socket.socket(type=trio.socket.SOCK_DGRAM)
    send = f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'here', ({hub.address!r}, 9000))"
    with listening, trio.fail_after(TIMEOUT_SEC):
        await listening.bind((hub.address, 9000))
        async with pod.container([sys.executable, "-c", send], log=pod.logs / "log"):
            assert await listening.recv(100) == b"here"


async def test_a_port_of_the_hub_can_be_reached_from_this_machine(pods: PodsFactory, nursery: trio.Nursery) -> None:
    network = await pods(0)
    hub = network.hub
    async with hub.container(fallback_engine(hub).argv, log=hub.logs / "log"):
        await first_answer(f"http://{hub.address}:8000/health")
        port = await nursery.start(forward, hub.address, 8000)
        ask = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/health').status)"
        with trio.fail_after(TIMEOUT_SEC):
            done = await trio.run_process([sys.executable, "-c", ask], capture_stdout=True)
        assert done.stdout.split() == [b"200"]


PROGRAM_THAT_IS_KILLED = """
import sys, trio
from dataclasses import replace
from functools import partial
from operator import eq
from pathlib import Path
from controller.demo.sandbox import open_network

async def main():
    async with open_network(1, Path(sys.argv[1]), namespaces=True) as network:
        pod = network.pods[0]
        argv = ["sh", "-c", "setsid sleep 1000 & exec sleep 1000"]
        async with pod.container(argv, log=pod.logs / "log") as container:
            print(container.init_pid, flush=True)
            await trio.sleep_forever()

trio.run(main)
"""


async def test_nothing_is_left_when_the_test_run_itself_is_killed(namespaces: None, tmp_path: Path) -> None:
    before = _mounts_and_names()
    with trio.fail_after(TIMEOUT_SEC):
        program = await trio.lowlevel.open_process(
            [sys.executable, "-c", PROGRAM_THAT_IS_KILLED, str(tmp_path / "network")], stdout=-1
        )
        assert program.stdout is not None
        # Open until it is dead: unbuffered, it writes the end of its line by itself, and would die of a closed pipe.
        async with program.stdout:
            init_pid = int(await program.stdout.receive_some(100))
            network_namespace = os.readlink(f"/proc/{init_pid}/ns/net")
            container = os.pidfd_open(init_pid)
            try:
                program.kill()
                await program.wait()
                await trio.lowlevel.wait_readable(container)
            finally:
                os.close(container)
        await eventually(
            lambda: _inhabitants(network_namespace), lambda found: not found, "the end of all processes in the pod"
        )
    assert _mounts_and_names() == before


async def test_plain_processes_stand_in_where_namespaces_cannot_be_had(tmp_path: Path) -> None:
    async with open_process_network(2, tmp_path / "network") as network:
        one, other = network.pods
        assert one.address != other.address
        assert one.port(8000) != other.port(8000)
        program = fallback_engine(one, "--grandchild-holds-port")
        async with one.container(program.argv, log=one.logs / "log") as container:
            url = f"http://{one.address}:{one.port(8000)}/health"
            await first_answer(url)
            container.kill(signal.SIGKILL)
            assert await container.wait() == 137
            assert not await answers(url)


async def test_the_fallback_engine_loads_then_answers_and_says_what_it_is(tmp_path: Path) -> None:
    async with open_process_network(1, tmp_path / "network") as network:
        pod = network.pods[0]
        base = f"http://{pod.address}:{pod.port(8000)}"
        argv = fallback_engine(pod, "--load-sec=0.5").argv
        async with pod.container(argv, log=pod.logs / "log"), httpx.AsyncClient(timeout=TIMEOUT_SEC) as client:

            async def health() -> int | None:
                try:
                    return (await client.get(f"{base}/health")).status_code
                except httpx.ConnectError:
                    return None

            await eventually(health, lambda status: status == 503, "503 while loading")
            await eventually(health, lambda status: status == 200, "200")
            answer = await client.post(f"{base}/v1/completions", json={"prompt": "x", "max_tokens": 4})
            assert answer.json()["choices"][0]["text"] == "This is podvisor's fallback"


@pytest.mark.parametrize(
    "flags, code", [(["--fail-at-start"], 1), (["--fail-at-start", "--exit-code=42"], 42), (["--exit-code=3"], 3)]
)
async def test_the_fallback_engine_fails_on_command(tmp_path: Path, flags: list[str], code: int) -> None:
    async with open_process_network(1, tmp_path / "network") as network:
        pod = network.pods[0]
        async with pod.container(fallback_engine(pod, *flags).argv, log=pod.logs / "log") as container:
            if "--fail-at-start" not in flags:
                await first_answer(f"http://{pod.address}:{pod.port(8000)}/health")
                container.kill(signal.SIGTERM)
            with trio.fail_after(TIMEOUT_SEC):
                assert await container.wait() == code


async def test_the_fallback_engine_dies_of_a_missing_peer_at_the_next_request(tmp_path: Path) -> None:
    async with open_process_network(1, tmp_path / "network") as network:
        pod = network.pods[0]
        base = f"http://{pod.address}:{pod.port(8000)}"
        argv = fallback_engine(pod, f"--rpc={pod.address}:{pod.port(8001)}").argv
        async with pod.container(argv, log=pod.logs / "log") as container, httpx.AsyncClient() as client:
            await first_answer(f"{base}/health")
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post(f"{base}/v1/completions", json={})
            assert await container.wait() == 128 + signal.SIGABRT


def test_restarts_are_immediate_once_then_double_to_the_limit_and_start_anew_after_a_long_life() -> None:
    back_off = BackOff()
    delay: float | None = None
    delays = []
    for uptime_sec in [1.0] * 8 + [599.0, 600.0, 1.0]:
        delay = restart_delay(back_off, delay, uptime_sec)
        delays.append(delay)
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300, 300, 0, 10]


def test_a_probe_turns_at_its_threshold_and_not_before() -> None:
    probe = HttpProbe(port=1, path="/", failure_threshold=3, success_threshold=2)
    streak, verdicts = Streak(), []
    for answer in [True, True, False, False, True, False, False, False, True, True]:
        streak = observe(probe, streak, answer)
        verdicts.append(streak.verdict)
    assert verdicts == [None, True, True, True, True, True, True, False, False, True]


async def _text(path: Path) -> str:
    return path.read_text()


def _mounts_and_names() -> tuple[str, list[str]]:
    names = Path("/run/netns")
    return Path("/proc/self/mounts").read_text(), sorted(os.listdir(names)) if names.is_dir() else []


async def _inhabitants(network_namespace: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns" / "net") == network_namespace:
                found.append(process.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found
