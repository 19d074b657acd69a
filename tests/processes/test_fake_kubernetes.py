"""The fake API that stands for Kubernetes in our tests, judged by the one client that nobody here wrote: kubectl."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.support.fake_kubernetes.access import shipped_rules
from tests.support.fake_kubernetes.errors import ApiError
from tests.support.fake_kubernetes.objects import EVENTS, PODS, STATEFUL_SETS
from tests.support.fake_kubernetes.server import FakeKubernetes, pod
from tests.support.fake_kubernetes.serving import TOKEN, USER, Served, needs_kubectl, served

pytestmark = [needs_kubectl, pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")]


@asynccontextmanager
async def two_pods(tmp_path: Path) -> AsyncIterator[Served]:
    fake = FakeKubernetes()
    owner = fake.objects.create(STATEFUL_SETS, "default", {"metadata": {"name": "llama"}})
    for index in range(2):
        fake.objects.create(PODS, "default", pod(f"llama-{index}", labels={"app": "llama"}, owner=owner))
    fake.objects.create(PODS, "default", pod("other"))
    async with served(fake, tmp_path) as api:
        yield api


async def kubectl(api: Served, *arguments: str, token: str = "admin", fails: bool = False) -> str:
    with trio.fail_after(60):
        done = await trio.run_process(
            api.kubectl(*arguments, token=token), capture_stdout=True, capture_stderr=True, check=False
        )
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return (done.stderr if fails else done.stdout).decode()


async def test_kubectl_gets_lists_and_selects(tmp_path: Path) -> None:
    async with two_pods(tmp_path) as api:
        assert json.loads(await kubectl(api, "version", "-o", "json"))["serverVersion"]["minor"] == "32"
        names = await kubectl(api, "get", "pods", "-l", "app=llama", "-o", "name")
        assert names.split() == ["pod/llama-0", "pod/llama-1"]
        assert "llama-1" in await kubectl(api, "get", "po")
        assert 'pods "nobody" not found' in await kubectl(api, "get", "pod", "nobody", fails=True)
        assert json.loads(await kubectl(api, "get", "sts", "llama", "-o", "json"))["metadata"]["uid"]


async def test_kubectl_reads_pages(tmp_path: Path) -> None:
    async with two_pods(tmp_path) as api:
        names = await kubectl(api, "get", "pods", "--chunk-size=1", "-o", "name")
        assert len(names.split()) == 3
        assert sum("GET /api/v1/namespaces/default/pods" in line for line in api.fake.requests) == 3


async def test_kubectl_labels_patches_and_is_told_of_a_conflict(tmp_path: Path) -> None:
    async with two_pods(tmp_path) as api:
        await kubectl(api, "label", "pod", "llama-0", "tier=one")
        assert api.fake.objects.pod("llama-0")["metadata"]["labels"] == {"app": "llama", "tier": "one"}
        for kind in ("merge", "strategic"):
            await kubectl(api, "patch", "pod", "llama-0", f"--type={kind}", "-p", '{"metadata":{"labels":{"by":"us"}}}')
        stale = '{"metadata":{"resourceVersion":"1","labels":{"late":"yes"}}}'
        assert "modified" in await kubectl(api, "patch", "pod", "llama-0", "-p", stale, fails=True)


async def test_a_condition_is_patched_beside_the_others_and_only_on_the_pod_that_is_meant(tmp_path: Path) -> None:
    async with two_pods(tmp_path) as api:
        for name in ("Ready", "Mine"):
            condition = {"status": {"conditions": [{"type": name, "status": "True"}]}}
            await kubectl(
                api, "patch", "pod", "llama-0", "--subresource=status", "--type=strategic", "-p", json.dumps(condition)
            )
        kept = api.fake.objects.pod("llama-0")["status"]["conditions"]
        assert [each["type"] for each in kept] == ["Ready", "Mine"]
        other = json.dumps({"metadata": {"uid": "another"}, "status": {"phase": "Failed"}})
        refused = await kubectl(api, "patch", "pod", "llama-0", "--subresource=status", "-p", other, fails=True)
        assert "UID in the precondition" in refused


async def test_kubectl_follows_and_goes_on_when_the_watch_is_cut(tmp_path: Path) -> None:
    async with two_pods(tmp_path) as api, trio.open_nursery() as nursery:
        command = api.kubectl("get", "pods", "-w", "-o", "name")
        process = await nursery.start(_run_piped, command)
        seen = b""
        with trio.fail_after(60):
            while seen.count(b"\n") < 3:
                seen += await process.stdout.receive_some()
            api.fake.cut_watches()
            api.fake.objects.create(PODS, "default", pod("late"))
            while b"pod/late" not in seen:
                seen += await process.stdout.receive_some()
        process.kill()


async def _run_piped(command: list[str], task_status: trio.TaskStatus[trio.Process]) -> None:
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(command, stdout=-1)
        try:
            task_status.started(process)
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            nursery.cancel_scope.cancel()


async def test_kubectl_describe_shows_events_with_their_counts(tmp_path: Path) -> None:
    async with two_pods(tmp_path) as api:
        described = api.fake.objects.pod("llama-1")
        about = {"kind": "Pod", "namespace": "default", "name": "llama-1", "uid": described["metadata"]["uid"]}
        event = {
            "metadata": {"name": "llama-1.1"},
            "involvedObject": about,
            "reason": "RelaunchDone",
            "type": "Normal",
            "message": "all is well",
            "count": 3,
            "source": {"component": "podvisor-controller"},
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:05:00Z",
        }
        api.fake.objects.create(EVENTS, "default", event)
        shown = await kubectl(api, "describe", "pod", "llama-1")
        assert "RelaunchDone" in shown
        assert "(x3 over" in shown
        assert "Controlled By:" in shown
        assert "all is well" not in await kubectl(api, "describe", "pod", "llama-0")


async def test_kubectl_delete_waits_for_the_end_of_whoever_runs_the_pod(tmp_path: Path) -> None:
    async with two_pods(tmp_path) as api, trio.open_nursery() as nursery:
        told: list[str] = []

        async def end(name: str) -> None:
            while not api.fake.watching:
                await trio.sleep(0.02)
            api.fake.objects.remove(PODS, "default", name)
            api.fake.objects.create(PODS, "default", pod(name))

        def ends(found: dict[str, dict[str, str]]) -> None:
            told.append(found["metadata"]["name"])
            nursery.start_soon(end, told[-1])

        api.fake.objects.ended_gracefully = ends
        assert "deleted" in await kubectl(api, "delete", "pod", "llama-0")
        assert told == ["llama-0"]
        assert "llama-0" in await kubectl(api, "get", "pod", "llama-0"), "the next of that name"


async def test_kubectl_is_refused_what_the_shipped_role_does_not_allow(tmp_path: Path) -> None:
    async with two_pods(tmp_path) as api:
        api.fake.access.roles[USER] = shipped_rules()
        await kubectl(api, "get", "pods", token=TOKEN)
        assert "cannot list" in await kubectl(api, "get", "events", token=TOKEN, fails=True)
        assert "Unauthorized" in await kubectl(api, "get", "pods", token="nobody's", fails=True)


async def test_kubectl_obeys_a_retry_after(tmp_path: Path) -> None:
    async with two_pods(tmp_path) as api:
        api.fake.faults.refuse = ApiError(429, "too many requests, please try again later", retry_after_sec=1)

        async def relent() -> None:
            while not api.fake.requests:
                await trio.sleep(0.05)
            api.fake.faults.refuse = None

        async with trio.open_nursery() as nursery:
            nursery.start_soon(relent)
            assert "llama-0" in await kubectl(api, "get", "pods")
