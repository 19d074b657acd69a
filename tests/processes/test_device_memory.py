"""Device memory in the hygiene gate: commands, and NVML behind a library that is compiled for the test."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from supervisor.process import device_memory, procfs
from supervisor.process.device_memory import DeviceMemoryProbe, still_in_use
from supervisor.process.gate import Baseline, GateItem, GateReport, GateSpec, run_gate
from tests.support.real_processes import reaping

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="the stand-in for libnvidia-ml is compiled with cc")
FAKE_NVML = r"""
/* Two devices. What is in use, in MiB, stands in the file $FAKE_NVML; the word there may be an error or a hang. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { unsigned long long total, free, used; } memory;
static const char *uuids[2] = {"GPU-aaaa", "GPU-bbbb"};
static char word[64];
static long used[2];
int nvmlInit_v2(void) {
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    if (!file || fscanf(file, "%63s %ld", word, &used[1]) < 1) return 9;
    used[0] = atol(word);
    if (!strcmp(word, "no-driver")) return 9;
    if (!strcmp(word, "crash")) abort();
    if (!strcmp(word, "hang")) for (;;) pause();
    return 0;
}
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : "other"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const char **device) { *device = uuids[index]; return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, const char **device) {
    for (int i = 0; i < 2; i++) if (!strcmp(uuid, uuids[i])) { *device = uuids[i]; return 0; }
    return 6;
}
int nvmlDeviceGetUUID(const char *device, char *uuid, unsigned length) { strncpy(uuid, device, length); return 0; }
int nvmlDeviceGetMemoryInfo(const char *device, memory *found) {
    if (!strcmp(word, "lost")) return 15;
    int number = !strcmp(device, uuids[1]);
    if (number && used[1] < 0) return 3;
    found->total = 80ULL << 30;
    found->used = (unsigned long long) used[number] << 20;
    found->free = found->total - found->used;
    return 0;
}
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("nvml")
    source = directory / "nvml.c"
    source.write_text(FAKE_NVML)
    assert COMPILER is not None
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-o", str(directory / "libnvidia-ml.so.1"), str(source)],
        check=True,
        capture_output=True,
    )
    return directory


class Devices:
    """What the stand-in says."""

    def __init__(self, directory: Path, library: Path) -> None:
        self.file = directory / "in-use"
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(self.file)}
        self.probe = DeviceMemoryProbe(environment)
        self.spec = GateSpec(device_memory=self.probe, device_memory_timeout_sec=0.3)

    def say(self, words: str) -> None:
        self.file.write_text(words)


@pytest.fixture
def devices(tmp_path: Path, library: Path) -> Devices:
    return Devices(tmp_path, library)


def memory(report: GateReport) -> GateItem:
    (found,) = [one for one in report.items if one.name == "device memory"]
    return found


@pytest.mark.parametrize(
    "now, busy",
    [
        ({"a": 600, "b": 3}, ()),
        ({"a": 613, "b": 3}, ("a: 613 MiB in use, 100 MiB before the first start",)),
        ({"new": 600}, ("new: 600 MiB in use, 0 MiB before the first start",)),
        ({}, ()),
    ],
)
def test_what_counts_is_what_came_beyond_the_baseline(now: dict[str, int], busy: tuple[str, ...]) -> None:
    mib = 2**20
    baseline = {"a": 100 * mib, "b": 5000 * mib}
    assert still_in_use(baseline, {device: used * mib for device, used in now.items()}) == busy


@needs_compiler
@pytest.mark.seed("S29")
async def test_the_next_engine_waits_until_the_memory_of_the_old_one_is_back(devices: Devices) -> None:
    async with reaping() as children:
        devices.say("3 70000")
        first = await run_gate(children, devices.spec)
        assert first.passed
        assert memory(first).detail == "in use before the first start: GPU-aaaa: 3 MiB, GPU-bbbb: 70000 MiB"

        devices.say("40000 70100")
        spec = replace(devices.spec, baseline=first.baseline)
        report = await run_gate(children, spec)
        assert report.reason == "device memory: GPU-aaaa: 40000 MiB in use, 3 MiB before the first start"

        async with trio.open_nursery() as nursery:

            async def free_it() -> None:
                await trio.sleep(2 * device_memory.AGAIN_SEC)
                devices.say("400 70100")

            nursery.start_soon(free_it)
            report = await run_gate(children, replace(spec, device_memory_timeout_sec=60))
        assert report.passed
        assert memory(report).detail == "back"


@needs_compiler
@pytest.mark.parametrize(
    "visible, seen",
    [
        ("1", "GPU-bbbb: 7 MiB"),
        ("GPU-bbbb", "GPU-bbbb: 7 MiB"),
        ("GPU-bb", "GPU-aaaa: 3 MiB, GPU-bbbb: 7 MiB"),
        ("", "no device is visible"),
    ],
)
async def test_only_the_devices_of_the_engine_are_looked_at(visible: str, seen: str, devices: Devices) -> None:
    devices.say("3 7")
    probe = replace(devices.probe, environment={**devices.probe.environment, "CUDA_VISIBLE_DEVICES": visible})
    async with reaping() as children:
        report = await run_gate(children, replace(devices.spec, device_memory=probe, device_memory_timeout_sec=30))
    assert memory(report).detail == f"in use before the first start: {seen}"


@needs_compiler
async def test_a_device_without_memory_of_its_own_is_passed_over(devices: Devices) -> None:
    devices.say("3 -1")
    async with reaping() as children:
        report = await run_gate(children, replace(devices.spec, device_memory_timeout_sec=30))
    assert memory(report).detail == "in use before the first start: GPU-aaaa: 3 MiB"


@needs_compiler
async def test_a_driver_that_hangs_hangs_its_helper_alone(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "ASK_SEC", 0.5)
    devices.say("hang")
    async with reaping() as children:
        report = await run_gate(children, replace(devices.spec, device_memory_timeout_sec=1.5))
        assert report.reason == "device memory: NVML did not answer within 0.5 s: the driver hangs"
        assert procfs.children_of_ours() == ()


@needs_compiler
@pytest.mark.parametrize(
    "words, said",
    [("lost", "NVML: nvmlDeviceGetMemoryInfo: GPU is lost"), ("crash", "NVML: killed by SIGABRT, core dumped")],
)
async def test_what_nvml_says_is_told(words: str, said: str, devices: Devices) -> None:
    devices.say(words)
    async with reaping() as children:
        report = await run_gate(children, replace(devices.spec, device_memory_timeout_sec=2))
    assert report.reason.startswith(f"device memory: {said}".removesuffix(", core dumped"))


@pytest.mark.parametrize("required", [True, False])
async def test_without_nvml_only_who_asked_for_it_is_refused(required: bool) -> None:
    probe = DeviceMemoryProbe({"PATH": os.environ["PATH"]}, required=required)
    async with reaping() as children:
        report = await run_gate(children, GateSpec(device_memory=probe))
    assert report.passed is not required
    assert "libnvidia-ml.so.1 cannot be loaded" in memory(report).detail
    assert report.baseline.device_memory is None


@needs_compiler
async def test_without_a_driver_it_does_not_wait(devices: Devices) -> None:
    devices.say("no-driver")
    async with reaping() as children:
        report = await run_gate(children, replace(devices.spec, device_memory_timeout_sec=600))
    assert report.reason == "device memory: nvmlInit_v2: Driver Not Loaded"


async def test_a_command_is_asked_until_it_exits_with_0(tmp_path: Path) -> None:
    count = tmp_path / "asked"
    script = f"echo x >> {count}; test $(wc -l < {count}) -ge 3 || {{ echo 12 GiB to go; exit 1; }}"
    probe = DeviceMemoryProbe({"PATH": os.environ["PATH"]}, ("sh", "-c", script))
    async with reaping() as children:
        report = await run_gate(children, GateSpec(device_memory=probe, baseline=Baseline()))
        assert report.passed
        assert count.read_text().count("x") == 3

        count.unlink()
        report = await run_gate(children, GateSpec(device_memory=probe, device_memory_timeout_sec=0.3))
        assert report.reason == "device memory: sh: exit status 1: 12 GiB to go"


@pytest.mark.parametrize(
    "command, said",
    [
        (("no-such-probe",), "cannot execute 'no-such-probe': not found in PATH"),
        (("sh", "-c", "setsid sleep 1000 & exec sleep 1000"), "sh did not end within 0.3 s"),
        (("yes", "x" * 1000), f"yes: killed by SIGXFSZ: {'x' * 200}"),
    ],
)
async def test_a_command_that_misbehaves_costs_no_more_than_its_time(
    command: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_memory, "ASK_SEC", 30 if command[0] == "yes" else 0.3)
    probe = DeviceMemoryProbe({"PATH": os.environ["PATH"]}, command)
    async with reaping() as children:
        report = await run_gate(children, GateSpec(device_memory=probe, device_memory_timeout_sec=0.7))
        assert procfs.children_of_ours() == ()
    assert said in report.reason
