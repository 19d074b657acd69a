"""Whatever a unit file may say that is taken: a start answers with a process or says why there is none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from supervisor.process import children as children_module
from supervisor.process import procfs
from supervisor.process.children import Children, Spawn, SpawnError
from supervisor.process.spawn import apply_settings, resolve_credentials, uid_of
from supervisor.service.checks import check_http, check_tcp
from supervisor.service.launch import LaunchError, spawn_of, unit_launch
from supervisor.unit.errors import ConfigurationError
from supervisor.unit.keys import SERVICE
from supervisor.unit.model import HttpCheck, ResourceLimit, TcpCheck, Unit
from supervisor.unit.parse import load_units
from tests.support.real_processes import reaping
from tests.support.real_processes import spawn_of as plain

LIMITS = [key for key in SERVICE if key.startswith("Limit")]
AMOUNTS = (
    '"18446744073709551615"', '"18446744073709551616"', "9223372036854775807", '"9223372036854775808"', '"infinity"',
    f'"{"9" * 400}"', f'"1:{"9" * 30}"', '":9223372036854775807"', "0", '"8388608T"', '"9007199254740993.5K"',
)  # fmt: skip
IDS = (
    '"0"', '"65534"', '"4294967294"', '"4294967295"', '"4294967296"', '"18446744073709551615"', f'"{"9" * 30}"', '"-1"',
    '"-2"', f'"{"9" * 5000}"', '"\\u0661"', '"²"', '"1_0"', '" 1"', '"${BIG}"', '"${MINUS}"', '"${ODD}"', '"nosuch"',
)  # fmt: skip
VARIABLES = {
    "PATH": os.environ["PATH"],
    "BIG": "9" * 30,
    "MINUS": "-1",
    "ODD": os.fsdecode(b"\xff\xfe"),
    "PORT": "70000",
}
OTHERS = (
    'CPUAffinity = "99999"', "CPUAffinity = [99999, 0]", 'CPUAffinity = "${N:-0}"', 'UMask = "0777"', 'UMask = "7777"',
    "Nice = -20", "OOMScoreAdjust = -1000", f'WorkingDirectory = "/{"x" * 5000}"', 'WorkingDirectory = "${ODD}"',
    'WorkingDirectory = "/a\\u0000b"', 'LoadCredential = ["x:/a\\u0000b"]', f'LoadCredential = ["x:/{"x" * 5000}"]',
    'LoadCredential = ["x:${ODD}"]', 'EnvironmentFile = ["/"]', 'EnvironmentFile = ["${ODD}"]',
    'Environment = { A = "${ODD}" }', 'Environment = ["=x"]', 'PassEnvironment = ["ODD"]',
    'User = "${BIG}"\nGroup = "1"', 'Group = "${BIG}"', 'SupplementaryGroups = ["${MINUS}"]',
)  # fmt: skip


def unit_of(directory: Path, lines: str) -> Unit | None:
    """None: the file is refused, and says so."""
    (directory / "u.toml").write_text(f'[Service]\nExecStart = ["true"]\n{lines}\n')
    try:
        (unit,) = load_units([directory])
    except ConfigurationError:
        return None
    return unit


async def wanted(unit: Unit, variables: Mapping[str, str] = VARIABLES) -> Spawn:
    """Raise LaunchError."""
    launch = await unit_launch(unit, variables, {})
    return spawn_of(launch, launch.argv, {"INVOCATION_ID": "test"}, 1, 2)


async def answer(children: Children, unit: Unit) -> str:
    try:
        child = await children.spawn(await wanted(unit))
    except (LaunchError, SpawnError) as error:
        return str(error)
    await child.exited.wait()
    children.release(child)
    return "ran"


async def test_a_limit_of_any_size_is_set_or_told(tmp_path: Path) -> None:
    said = {}
    async with reaping() as children:
        for amount in AMOUNTS:
            victim = await children.spawn(plain("sleep", "600"))
            for key in LIMITS:
                if (unit := unit_of(tmp_path, f"{key} = {amount}")) is not None:
                    try:
                        apply_settings(victim.pid, await wanted(unit))
                    except SpawnError as error:
                        said[key, amount] = error.reason
        whole = unit_of(tmp_path, 'LimitMEMLOCK = "18446744073709551615"')
        assert whole is not None
        outcome = await answer(children, whole)
    assert whole.service.execution.limits == (ResourceLimit("MEMLOCK", float("inf"), float("inf")),)
    assert outcome == "ran" or "the hard limit here is" in outcome
    assert all(words.startswith("cannot set Limit") for words in said.values())


@pytest.mark.parametrize("key", ["User", "Group", "SupplementaryGroups"])
async def test_an_account_of_any_kind_is_found_or_told(key: str, tmp_path: Path) -> None:
    for value in IDS:
        for more in ("", 'Group = "1"\n') if key == "User" else ("",):
            if (unit := unit_of(tmp_path, f"{more}{key} = {value}")) is None:
                continue
            spawn = await wanted(unit)
            uid_of(spawn.user)
            try:
                credentials = resolve_credentials(spawn)
            except SpawnError as error:
                assert error.reason.startswith(("cannot become user", "cannot use group"))  # noqa: PT017
            else:
                numbers = (credentials.user, credentials.group, *(credentials.groups or ()))
                assert all(number is None or 0 <= number < 2**32 - 1 for number in numbers)


async def test_paths_and_priorities_of_any_kind_are_taken_or_told(tmp_path: Path) -> None:
    async with reaping() as children:
        for lines in (
            *OTHERS,
            'User = "${BIG}"\nGroup = "1"',
            'Group = "${BIG}"',
            'SupplementaryGroups = ["${MINUS}"]',
        ):
            if (unit := unit_of(tmp_path, lines)) is not None:
                assert await answer(children, unit)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:99999999999999999999999", "127.0.0.1:70000", f"127.0.0.1:{'9' * 5000}", "127.0.0.1:0", "a..b:1",
     "\udcff:1", f"{'x' * 300}:1", "[::1%lo]:1", "[fe80::1%nope]:1", "", ":", "a:²"],
)  # fmt: skip
async def test_a_probe_of_any_address_says_why_it_fails(address: str) -> None:
    with trio.fail_after(60):
        assert await check_tcp(TcpCheck(address))
        assert await check_http(HttpCheck(f"http://{address}/"))


@pytest.mark.parametrize("nice", [None, 0], ids=["in one step", "in two steps"])
@pytest.mark.parametrize("error", [KeyError("a bug"), OverflowError("too large"), TypeError("not that")])
async def test_an_error_of_any_kind_is_a_spawn_that_failed_and_leaves_nothing(
    nice: int | None, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(children_module, "_open" if nice is None else "apply_settings", broken)
    async with reaping() as children:
        before = set(os.listdir("/proc/self/fd"))
        with pytest.raises(SpawnError, match=f"cannot execute 'sleep': {type(error).__name__}"):
            await children.spawn(Spawn(("sleep", "600"), VARIABLES, nice=nice))
        assert procfs.children_of_ours() == ()
        assert set(os.listdir("/proc/self/fd")) == before
        assert children.managed == frozenset()
