"""`podvisor run` as PID 1 where its cgroup2 may be written, may only be read, is not there, or is not its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.support.cgroups import cgroup_for_a_test, cgroups_below
from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import PODVISOR, Running, Sections, program, shell, write_files

NOBODY = 65534
INTO_NAMESPACES = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child=KILL"]
CONTAINER = """
    set -e
    place=$1 cgroup=$2 prefix=$3; shift 3
    case $place in absent) ;; *) echo 0 > $cgroup/cgroup.procs ;; esac
    exec unshare --cgroup sh -ec '
        place=$1 prefix=$2; shift 2
        mount -t proc proc /proc
        umount -R /sys/fs/cgroup
        case $place in
            written) mount -t cgroup2 none /sys/fs/cgroup ;;
            read-only) mount -t cgroup2 -o ro none /sys/fs/cgroup ;;
        esac
        case $prefix in  # other users have no way through /root
            /root/*) mount --bind $prefix /mnt; mount -t tmpfs -o mode=755 none /root
                     mkdir -p $prefix; mount --move /mnt $prefix ;;
        esac
        exec "$@"' _ $place $prefix "$@"
"""
"""PID 1 of a container, alone in its cgroup: nobody above it is in there."""
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs",
             "--inh-caps=-all", "--bounding-set=-all"]  # fmt: skip
TELLS = "grep ^0:: /proc/self/cgroup; setsid sleep 600 & "
UNITS: dict[str, Sections] = {
    "engine": {
        "Service": {"ExecStart": shell(TELLS + "exec sleep 600")},
        "Engine": {"Launcher": "exec", "RestartWith": "local", "Start": "auto"},
    },
    "monitor": {"Service": {"ExecStart": shell(TELLS + "exec sleep 600")}},
}


@pytest.fixture
def cgroup() -> Iterator[Path]:
    tried = subprocess.run([*INTO_NAMESPACES, "true"], capture_output=True, text=True, check=False, timeout=TIMEOUT_SEC)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces can be made: {tried.stderr.strip()}")
    with cgroup_for_a_test() as made:
        yield made


@pytest.fixture(params=["root", "nobody"])
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def directory(user: str) -> Iterator[Path]:
    """Also for nobody, who cannot reach pytest's."""
    path = Path(tempfile.mkdtemp(prefix="podvisor-cgroup-"))
    yield path
    shutil.rmtree(path)


@asynccontextmanager
async def container(place: str, cgroup: Path, directory: Path, user: str, *before: str) -> AsyncIterator[Running]:
    """`before`: what stands above podvisor in the container, if not it is to be PID 1."""
    arguments = write_files(directory, UNITS, {"supervisor": {"pod_ip": "127.0.0.1", "port": 0}})
    if user == "nobody":
        for path in (
            directory,
            *directory.rglob("*"),
            cgroup,
            cgroup / "cgroup.procs",
            cgroup / "cgroup.subtree_control",
        ):
            os.chown(path, NOBODY, NOBODY)
    become = AS_NOBODY if user == "nobody" else []
    inside = [*before, *become, *PODVISOR, *arguments]
    head = [*INTO_NAMESPACES, "sh", "-c", CONTAINER, "_", place, str(cgroup), sys.base_prefix]
    async with program(*head, *inside) as running:
        yield running


async def told(running: Running, unit: str, count: int = 1) -> str:
    """The cgroup that a unit sees itself in."""
    return (await running.stdout.saw(rf"^(?:\[{unit}[^]]*\] )?0::(.*)", count))[1]


async def init_of(running: Running) -> int:
    """PID 1 of the container, as we see it."""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    with trio.fail_after(TIMEOUT_SEC):
        while not (pids := children.read_text().split()):
            await trio.sleep(0.01)  # unshare has not forked yet
    return int(pids[0])


async def test_where_it_may_be_written_an_engine_has_one_of_its_own(cgroup: Path, directory: Path, user: str) -> None:
    async with container("written", cgroup, directory, user) as running:
        await running.stderr.saw("start in cgroups of their own, below /sys/fs/cgroup")
        first = await told(running, "engine")
        assert first.startswith("/podvisor.1.")
        assert await told(running, "monitor") == "/"
        assert [f"/{name}" for name in cgroups_below(cgroup)] == [first]
        (main, *_) = (cgroup / first[1:] / "cgroup.procs").read_text().split()
        os.kill(int(main), 9)
        second = await told(running, "engine", 2)
        assert first != second
        assert [f"/{name}" for name in cgroups_below(cgroup)] == [second]
        os.kill(await init_of(running), 15)
        assert await running.ended() in (0, 143, 255)
    assert cgroups_below(cgroup) == []


@pytest.mark.parametrize(
    "place, why", [("read-only", "/sys/fs/cgroup may not be written"), ("absent", "no cgroup2 is mounted here")]
)
async def test_elsewhere_it_does_without(cgroup: Path, directory: Path, user: str, place: str, why: str) -> None:
    async with container(place, cgroup, directory, user) as running:
        await running.stderr.saw(f"info .* no cgroups are used: {why}")
        await told(running, "engine")
        os.kill(await init_of(running), 15)
        await running.ended()
        assert not running.stderr.matching("still there|starts without")
    assert cgroups_below(cgroup) == []


@pytest.mark.parametrize("user", ["root"], indirect=True)
async def test_one_that_others_are_in_is_left_alone(cgroup: Path, directory: Path, user: str) -> None:
    async with program("sleep", "600") as stranger:
        (cgroup / "cgroup.procs").write_text(str(stranger.pid))
        async with container("written", cgroup, directory, user) as running:
            await running.stderr.saw("no cgroups are used: .* holds processes of another pid namespace")
            await told(running, "engine")
        assert stranger.process.poll() is None


@pytest.mark.parametrize("user", ["root"], indirect=True)
async def test_those_of_an_earlier_life_are_cleared_with_what_runs_in_them(
    cgroup: Path, directory: Path, user: str
) -> None:
    """Podvisor is killed below somebody who starts it again: its engine has lived on."""
    again = shell('"$@"; "$@"')
    async with container("written", cgroup, directory, user, *again, "_") as running:
        first = await told(running, "engine")
        old = [int(pid) for pid in (cgroup / first[1:] / "cgroup.procs").read_text().split()]
        (supervisor,) = (
            Path(f"/proc/{await init_of(running)}/task/{await init_of(running)}/children").read_text().split()
        )
        os.kill(int(supervisor), 9)
        await running.stderr.saw("cgroups of an earlier supervisor were here: 1 removed with what ran in them, 0 in")
        second = await told(running, "engine", 2)
        assert [f"/{name}" for name in cgroups_below(cgroup)] == [second]
        present = (cgroup / second[1:] / "cgroup.procs").read_text().split()
        assert set(old).isdisjoint(map(int, present))


@pytest.mark.parametrize("user", ["root"], indirect=True)
async def test_those_of_another_supervisor_that_lives_are_not_touched(cgroup: Path, directory: Path, user: str) -> None:
    """Podvisor as a unit of a podvisor: here the shell, PID 1, is the outer one."""
    held = "/sys/fs/cgroup/podvisor.1.held"
    above = shell(f'mkdir {held}; sleep 600 & echo $! > {held}/cgroup.procs; "$@"')
    async with container("written", cgroup, directory, user, *above, "_") as running:
        inner = await told(running, "engine")
        assert sorted(f"/{name}" for name in cgroups_below(cgroup)) == sorted(["/podvisor.1.held", inner])
        assert (cgroup / "podvisor.1.held" / "cgroup.procs").read_text() != ""
        assert not running.stderr.matching("cgroups of an earlier supervisor")
