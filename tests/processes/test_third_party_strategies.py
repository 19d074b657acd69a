"""The example of docs/strategies.md is installed with pip, found by the controller, selected and executed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest
from trio.testing import MockClock

from controller.model.instance import InstanceStatus
from controller.policy import Policy
from controller.strategy.third_party import GROUP, Found, find
from supervisor import wire
from tests.support.controller_world import World, open_world

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

PAGE = Path(__file__).parents[2] / "docs" / "strategies.md"
FILES = re.compile(r"^```(?:toml|python)\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK_DOWN = 0x81078603


def wheel(folder: Path, name: str, version: str, modules: dict[str, str], points: dict[str, str]) -> Path:
    """As a build backend would make it of a project of plain modules."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    listed = "".join(f"{point} = {target}\n" for point, target in points.items())
    contents = modules | {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/entry_points.txt": f"[{GROUP}]\n{listed}",
    }
    record = "".join(f"{member},,\n" for member in contents)
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in (contents | {f"{stem}.dist-info/RECORD": record}).items():
            archive.writestr(member, text)
    return path


def install(path: Path, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", str(target), str(path)]
    subprocess.run(command, check=True, capture_output=True)


def points_in(folder: Path) -> list[EntryPoint]:
    return [
        point
        for distribution in distributions(path=[str(folder)])
        for point in distribution.entry_points
        if point.group == GROUP
    ]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Found:
    files = dict(FILES.findall(PAGE.read_text()))
    project = tomllib.loads(files.pop("pyproject.toml"))["project"]
    target = tmp_path / "site-packages"
    built = wheel(tmp_path, project["name"], project["version"], files, project["entry-points"][GROUP])
    install(built, target)
    monkeypatch.syspath_prepend(str(target))
    monkeypatch.delitem(sys.modules, "wait_for_link", raising=False)
    # As the controller looks for them: on the whole path.
    return find()


async def report(world: World, level: str) -> wire.FaultAnswer:
    message = {"fault_code": LINK_DOWN, "fault_level": level, "pod_ip": world.gangs["job"][0].ip}
    answer = await world.client.post("/controller/report_hardware_fault", json=message)
    assert answer.status_code == 200, answer.text
    return wire.decode(wire.FaultAnswer, answer.content)


async def test_the_example_is_installed_found_selected_and_executed(
    installed: Found, autojump_clock: MockClock
) -> None:
    assert (list(installed.offers), installed.errors) == (["wait_for_link"], ())
    async with open_world(Policy(third_party=installed.rules), offers=installed.offers) as world:
        world.add_gang()
        await world.until_active()
        answer = await report(world, "L3")
        assert (answer.recovery, answer.strategy) == (wire.Recovery.PENDING, "wait_for_link")
        assert world.instance().status is InstanceStatus.INACTIVE
        await report(world, "HEALTHY")
        await world.until(lambda: world.it.registry.closed_runs[0].strategy == "wait_for_link", within=10)
        closed = world.it.registry.closed_runs[0]
        assert (closed.outcome, closed.message) == ("done", "the link is back")
        assert world.instance().status is InstanceStatus.ACTIVE
        # And if it stays down, the relaunch follows.
        await report(world, "L2")
        await world.until_active(epoch=2)
        assert [run.outcome for run in list(world.it.registry.closed_runs)[:2]] == ["done", "failed"]


async def test_one_that_breaks_while_it_works_has_failed_and_the_controller_goes_on(
    installed: Found, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> bool:
        raise LookupError("a bug of theirs")

    monkeypatch.setattr(sys.modules["wait_for_link"].WaitForLink, "_is_down", broken)
    async with open_world(Policy(third_party=installed.rules), offers=installed.offers) as world:
        world.add_gang()
        await world.until_active()
        await report(world, "L2")
        await world.until_active(epoch=2)
        failed = list(world.it.registry.closed_runs)[1]
        assert "LookupError('a bug of theirs')" in failed.message
        assert [record.message for record in caplog.records if record.exc_info] == ["the strategy wait_for_link broke"]


BROKEN = {
    "no_module": ("nowhere:OFFER", "cannot be loaded: ModuleNotFoundError"),
    "raises": ("raising:OFFER", "cannot be loaded: ZeroDivisionError"),
    "no_offer": ("plain:NUMBER", "is of type int"),
    "other_name": ("plain:OFFER", "names the strategy somebody_else"),
    "greedy": ("plain:GREEDY", "a dead engine (0x1000001) is always the relaunch's"),
    "token_reinference": ("plain:OFFER", "another strategy of this name"),
}
MODULES = {
    "raising.py": "1 / 0\n",
    "plain.py": (
        "from controller.model.selection import Rule\n"
        "from controller.strategy.third_party import Offer\n"
        "NUMBER = 1\n"
        "OFFER = Offer((Rule('somebody_else'),), lambda tools: None)\n"
        "GREEDY = Offer((Rule('greedy', codes=frozenset({0x1000001})),), lambda tools: None)\n"
        "FINE = Offer((Rule('fine', codes=frozenset({1})),), lambda tools: None)\n"
    ),
}


def test_a_broken_one_is_named_in_one_error_and_stops_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {name: target for name, (target, _) in BROKEN.items()} | {"fine": "plain:FINE"}
    target = tmp_path / "site-packages"
    install(wheel(tmp_path, "podvisor-broken", "0.1", MODULES, points), target)
    monkeypatch.syspath_prepend(str(target))
    found = find(points_in(target))
    assert list(found.offers) == ["fine"]
    assert len(found.errors) == len(BROKEN)
    for name, (_, why) in BROKEN.items():
        (error,) = [error for error in found.errors if error.startswith(f"the strategy {name} of podvisor-broken 0.1")]
        assert why in error
