"""podvisor.pyz on a bare Python: no package is installed there, and none is looked for (-I)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.conftest import DEPLOY
from tests.deploy.images import Python
from tests.support.running_supervisor import FOREVER, service, supervisor


@pytest.fixture
def bare(python: Python, pyz: Path) -> tuple[str, ...]:
    return (str(python.program), "-I", str(pyz))


def run(bare: tuple[str, ...], *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [*bare, *map(str, arguments)]
    environment = {"PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd="/")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_the_same_wheels_give_the_same_bytes_with_any_python(
    pyz: Path, another_python: Python, wheels: Path, tmp_path: Path
) -> None:
    again = tmp_path / "deeper" / "again.pyz"
    umask = os.umask(0o077)
    try:
        build = [str(another_python.program), str(DEPLOY / "pyz.py"), "--wheels", str(wheels), str(again)]
        subprocess.run(build, check=True)
    finally:
        os.umask(umask)
    assert again.read_bytes() == pyz.read_bytes()


def test_it_answers_verifies_and_runs_a_command(bare: tuple[str, ...], cache: Path, tmp_path: Path) -> None:
    assert run(bare, "--version", PODVISOR_CACHE=str(cache)).stdout == "podvisor, version 0.1.0\n"
    (tmp_path / "web.toml").write_text('[Service]\nExecStart = ["sleep", "600"]\n')
    verified = run(bare, "verify", tmp_path, PODVISOR_CACHE=str(cache))
    assert "1 unit, in start order" in verified.stdout
    assert run(bare, "run", "--", "true", PODVISOR_CACHE=str(cache)).returncode == 0
    assert run(bare, "run", "--", "sh", "-c", "exit 3", PODVISOR_CACHE=str(cache)).returncode == 3
    assert len(list(cache.iterdir())) == 1, "unpacked once"


async def test_a_supervisor_out_of_it_runs_units_and_answers(
    bare: tuple[str, ...], cache: Path, tmp_path: Path
) -> None:
    units, place = {"web": service(*FOREVER)}, str(cache)
    async with supervisor(tmp_path, units, command=bare, PODVISOR_CACHE=place) as running:
        pid = await running.started("web")
        await running.online()
        told = run(bare, "status", PODVISOR_SOCKET=str(running.socket), PODVISOR_CACHE=place)
        assert (told.returncode, told.stderr) == (0, "")
        assert f" {pid} " in told.stdout
        running.process.terminate()
        assert await running.ended() == 0


def test_it_is_the_controller_too(bare: tuple[str, ...], cache: Path) -> None:
    assert "--config" in run(bare, "controller", "--help", PODVISOR_CACHE=str(cache)).stdout


def test_without_a_cache_of_its_own_it_takes_the_users_and_then_a_temporary_one(
    bare: tuple[str, ...], tmp_path: Path
) -> None:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    assert run(bare, "--version", HOME=str(home), TMPDIR=str(temporary)).returncode == 0
    assert list(home.glob(".cache/podvisor/*/bin/podvisor"))
    assert not list(temporary.iterdir())
    for unusable in ({"HOME": "/proc"}, {"HOME": ""}, {}):
        assert run(bare, "--version", TMPDIR=str(temporary), **unusable).returncode == 0
    assert list(temporary.glob(f"podvisor-cache-{os.getuid()}/*/bin/podvisor"))


def test_a_cache_into_which_others_may_write_is_refused(bare: tuple[str, ...], cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    done = run(bare, "--version", PODVISOR_CACHE=str(cache))
    assert done.returncode == 78
    assert f"{cache}: is no directory that belongs to this user alone" in done.stderr
    assert "set PODVISOR_CACHE to a directory of yours" in done.stderr
    assert not list(cache.iterdir())


def test_many_that_start_at_once_share_one_whole_prefix(bare: tuple[str, ...], cache: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "PODVISOR_CACHE": str(cache)}
    started = [subprocess.Popen([*bare, "--version"], env=environment, stdout=subprocess.PIPE) for _ in range(4)]
    assert [process.communicate()[0] for process in started] == [b"podvisor, version 0.1.0\n"] * 4
    assert len(list(cache.iterdir())) == 1


def test_what_a_cleaner_of_old_files_has_taken_comes_back_beneath_those_that_run(
    bare: tuple[str, ...], cache: Path
) -> None:
    assert run(bare, "--version", PODVISOR_CACHE=str(cache)).returncode == 0
    (prefix,) = cache.iterdir()
    whole = {path.relative_to(prefix) for path in prefix.rglob("*")}
    stayed = prefix / "lib" / "click" / "core.py"
    before = (prefix.stat().st_ino, stayed.stat().st_ino)
    shutil.rmtree(prefix / "lib" / "supervisor")
    for name in ("share/podvisor/pythons", "bin/podvisor", "lib/click/__init__.py"):
        (prefix / name).unlink()
    done = run(bare, "--version", PODVISOR_CACHE=str(cache))
    assert (done.returncode, done.stdout) == (0, "podvisor, version 0.1.0\n")
    assert {path.relative_to(prefix) for path in prefix.rglob("*") if path.suffix != ".pyc"} >= whole - {
        path for path in whole if "__pycache__" in path.parts
    }
    assert (prefix / "bin" / "podvisor").stat().st_mode & 0o111
    assert (prefix.stat().st_ino, stayed.stat().st_ino) == before, "nothing is taken from a process that runs"
    assert list(cache.iterdir()) == [prefix]


def test_nobody_else_may_write_into_what_is_unpacked_whatever_the_umask(bare: tuple[str, ...], cache: Path) -> None:
    umask = os.umask(0)
    try:
        assert run(bare, "--version", PODVISOR_CACHE=str(cache)).returncode == 0
    finally:
        os.umask(umask)
    (prefix,) = cache.iterdir()
    assert not prefix.stat().st_mode & 0o077
