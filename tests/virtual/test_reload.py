"""Reload in a running pod: what goes on, what is restarted, in which order, and who is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from supervisor.api.operations import Refused, WrongFiles
from supervisor.configuration import Options, configure
from supervisor.ending import EXIT_OK, Ending
from supervisor.host import Host
from supervisor.pod import Pod
from supervisor.pod_operations import PodOperations
from supervisor.process.drops import DropObserver
from supervisor.process.gate import GateReport, GateSpec
from supervisor.reload import Files
from supervisor.service.service import Service, StartFailed
from supervisor.unit.model import Unit
from supervisor.unit.states import RunState, SubState
from supervisor.wire import Endpoint, ReloadView, StartCmdMsg, Step
from tests.support.fake_processes import FAILED, FakeOutput, FakeProcesses, Program
from tests.support.instant_disk import InstantDisk

IP = "127.0.0.1"
COORDINATED = {
    "PODVISOR_SUPERVISOR__JOB_NAME": "llama",
    "PODVISOR_SUPERVISOR__CONTROLLER_URL": "http://127.0.0.1:9",
}
ENGINE = '[Unit]\nAfter = ["store"]\n[Service]\nExecStart = ["engine"{}]\n[Engine]\nLauncher = "exec"\n'


def file(program: str, *more: str, unit: str = "", service: str = "") -> str:
    arguments = ", ".join(f'"{each}"' for each in (program, *more))
    return f"[Unit]\n{unit}\n[Service]\nExecStart = [{arguments}]\n{service}\n"


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ending = Ending()
        self.outputs: dict[str, FakeOutput] = {}
        self.pod: Pod
        self.processes: FakeProcesses

    def write(self, **files: str | None) -> None:
        """None: the file goes."""
        for name, text in files.items():
            path = self.directory / f"{name}.toml"
            path.unlink() if text is None else path.write_text(text)

    async def reload(self, *, dry_run: bool = False) -> ReloadView:
        return await PodOperations(self.pod).reload("operator", dry_run=dry_run)

    async def actions(self) -> dict[str, str]:
        return {unit.name: unit.action for unit in (await self.reload()).units}

    def unit(self, name: str) -> Service:
        return self.pod.units.get(name)

    def pid(self, name: str) -> int | None:
        return self.unit(name).state.pid

    def names(self) -> set[str]:
        return {service.unit.name for service in self.pod.units}

    @property
    def order(self) -> list[str]:
        return [" ".join(argv) for _, argv in self.processes.spawned]

    def output_of(self, unit: Unit, drops: DropObserver) -> FakeOutput:
        self.outputs[unit.name] = FakeOutput()
        return self.outputs[unit.name]


@asynccontextmanager
async def running(
    directory: Path,
    programs: Mapping[str, Program] | None = None,
    settings: Mapping[str, str] | None = None,
    /,
    **files: str,
) -> AsyncIterator[World]:
    world = World(directory)
    world.write(**files)
    environment = {"PODVISOR_SUPERVISOR__STATE_DIR": str(directory / "state"), "POD_IP": IP, **(settings or {})}
    configuration = configure(Options(None, (directory,), directory / "podvisor.sock"), environment)
    names = ("store", "web", "new", "old", "engine")
    async with trio.open_nursery() as fakes, trio.open_nursery() as nursery:
        world.processes = FakeProcesses(fakes, {name: Program() for name in names} | dict(programs or {}))
        host = Host(
            processes=world.processes,
            gate=_open_gate,
            segments_of=_no_segments,
            output_of=world.output_of,
            write_stdout=lambda _: None,
            disk=InstantDisk(),
        )
        world.pod = Pod(configuration, host, world.ending, nm_port=0)
        await nursery.start(world.pod.run)
        await trio.sleep(1)
        yield world
        nursery.cancel_scope.cancel()
        fakes.cancel_scope.cancel()


async def _open_gate(spec: GateSpec) -> GateReport:
    return GateReport(())


async def _no_segments(pid: int) -> dict[Path, tuple[int, int]]:
    return {}


async def test_only_what_has_changed_is_touched(tmp_path: Path, autojump_clock: MockClock) -> None:
    files = {"store": file("store"), "web": file("web", unit='After = ["store"]'), "old": file("old")}
    async with running(tmp_path, **files) as world:
        store, web = world.pid("store"), world.pid("web")
        world.write(
            store=file("store", service='Restart = "always"\nTimeoutStopSec = 7\nLogTailBytes = 1000'),
            web=file("web", "-v", unit='After = ["new"]'),
            old=None,
            new=file("new", unit='After = ["store"]'),
        )
        planned = await world.reload(dry_run=True)
        assert (world.names(), world.pid("web")) == ({"store", "web", "old"}, web)
        assert (await world.reload()).units == planned.units
        assert {unit.name: unit.action for unit in planned.units} == {
            "new": "start",
            "old": "stop",
            "store": "apply",
            "web": "restart",
        }
        await world.unit("web").wait_until(lambda state: state.state is RunState.ACTIVE)
        assert world.names() == {"store", "web", "new"}
        assert world.processes.alive("old") == 0
        assert world.pid("store") == store
        assert world.unit("store").rules.stop.timeout_sec == 7.0
        assert world.outputs["store"].logging is not None
        assert world.outputs["store"].logging.tail_bytes == 1000
        assert world.order[-2:] == ["new", "web -v"]
        assert set((await world.actions()).values()) == {"nothing"}


async def test_a_restart_policy_holds_for_the_process_that_runs(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, web=file("web", service='Restart = "no"')) as world:
        pid = world.pid("web")
        assert pid is not None
        world.write(web=file("web", service='Restart = "always"'))
        assert await world.actions() == {"web": "apply"}
        world.processes.crash(pid)
        await world.unit("web").wait_until(lambda state: state.started == 2)


async def test_units_stop_against_the_new_order_and_start_along_it(tmp_path: Path, autojump_clock: MockClock) -> None:
    slow = Program(obeys_after_sec=5.0)
    files = {"store": file("store"), "web": file("web")}
    async with running(tmp_path, {"store": slow, "web": slow}, **files) as world:
        world.write(store=file("store", "2"), web=file("web", "2", unit='After = ["store"]'))
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.reload)
            await world.unit("web").wait_until(lambda state: state.at_rest)
            assert trio.current_time() - began == 5.0
            assert world.processes.alive("store") == 1
        assert trio.current_time() - began == 10.0
        await world.unit("web").wait_until(lambda state: state.state is RunState.ACTIVE)
        assert world.order[-2:] == ["store 2", "web 2"]


async def test_wrong_files_change_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, web=file("web"), old=file("old")) as world:
        pid = world.pid("web")
        world.write(web="[Service]\nExecStrat = 1\n", old=None, new='[Unit]\nRequires = ["nosuch"]\n')
        for dry_run in (True, False):
            with pytest.raises(WrongFiles) as wrong:
                await world.reload(dry_run=dry_run)
            problems = {(Path(each.path).name, each.line, each.key) for each in wrong.value.body.problems}
            assert problems >= {("web.toml", 2, "Service.ExecStrat"), ("new.toml", 2, "Unit.Requires")}
            assert wrong.value.body.message.endswith("nothing was changed")
        assert (world.names(), world.pid("web")) == ({"web", "old"}, pid)


async def test_what_somebody_stopped_stays_down_until_somebody_starts_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path, web=file("web"), store=file("store")) as world:
        await world.pod.units.stop("web", asked_by="operator", reason="asked for")
        world.write(web=file("web", "2"))
        assert (await world.actions())["web"] == "apply"
        await trio.sleep(100)
        assert world.unit("web").state.sub_state is SubState.DEAD
        await world.pod.units.start("web", asked_by="operator")
        assert world.order[-1] == "web 2"


async def test_a_unit_that_was_called_off_in_its_back_off_stays_down(tmp_path: Path, autojump_clock: MockClock) -> None:
    crashing = {"web": Program(runs_sec=0.1, ends=FAILED)}
    async with running(tmp_path, crashing, web=file("web", service="RestartSec = 30\nStartLimitBurst = 0")) as world:
        await world.unit("web").wait_until(lambda state: state.sub_state is SubState.AUTO_RESTART)
        await world.pod.units.stop("web", asked_by="operator", reason="asked for")
        world.write(web=file("web", "2"))
        assert await world.actions() == {"web": "apply"}


async def test_a_unit_that_failed_is_tried_again_with_what_has_changed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    broken = {"web": Program(runs_sec=0.1, ends=FAILED)}
    async with running(tmp_path, broken, web=file("web", service='Restart = "no"')) as world:
        assert world.unit("web").state.state is RunState.FAILED
        world.write(web=file("store", service='Restart = "no"'))
        assert await world.actions() == {"web": "restart"}
        await world.unit("web").wait_until(lambda state: state.state is RunState.ACTIVE)


async def test_a_unit_that_was_skipped_is_asked_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, web=file("web", unit='ConditionPathExists = "/nowhere"')) as world:
        assert world.unit("web").state.skipped
        world.write(web=file("web", unit='ConditionPathExists = "/proc"'))
        assert await world.actions() == {"web": "restart"}
        await world.unit("web").wait_until(lambda state: state.state is RunState.ACTIVE)


async def test_a_oneshot_does_its_work_again_when_the_work_is_another(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    done = {"old": Program(runs_sec=0.1), "new": Program(runs_sec=0.1)}
    async with running(tmp_path, done, web=file("old", service='Type = "oneshot"')) as world:
        assert world.unit("web").state.completed
        world.write(web=file("old", service='Type = "oneshot"\nTimeoutStopSec = 3'))
        assert await world.actions() == {"web": "apply"}
        world.write(web=file("new", service='Type = "oneshot"\nTimeoutStopSec = 3'))
        assert await world.actions() == {"web": "restart"}
        await world.unit("web").wait_until(lambda state: state.completed)
        assert world.order == ["old", "new"]


async def test_who_waits_for_a_unit_that_goes_waits_no_more(tmp_path: Path, autojump_clock: MockClock) -> None:
    never = file("old") + '[Readiness]\nLogLine = "never"\n'
    async with running(tmp_path, old=never, web=file("web", unit='After = ["old"]')) as world:
        assert world.unit("web").state.sub_state is SubState.WAITING
        world.write(old=None)
        assert (await world.actions())["web"] == "nothing"
        await world.unit("web").wait_until(lambda state: state.state is RunState.ACTIVE)


async def test_who_waits_looks_again_by_the_new_order(tmp_path: Path, autojump_clock: MockClock) -> None:
    never = '[Readiness]\nLogLine = "never"\n'
    files = {"store": file("store") + never, "old": file("old"), "web": file("web", unit='After = ["store", "old"]')}
    async with running(tmp_path, **files) as world:
        world.write(old=None, web=file("web", unit='After = ["store", "new"]'), new=file("new") + never)
        assert (await world.actions())["web"] == "apply"
        world.outputs["store"].write("never")
        await trio.sleep(10)
        assert world.unit("web").state.sub_state is SubState.WAITING
        world.write(web=file("web"))
        assert (await world.actions())["web"] == "apply"
        await world.unit("web").wait_until(lambda state: state.state is RunState.ACTIVE)
        assert world.unit("new").state.sub_state is SubState.LOADING


async def test_who_waits_for_a_unit_that_is_restarted_goes_on_waiting(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """In between it is down, which fails those that require it, were it for long."""
    never = '[Readiness]\nLogLine = "ready"\n'
    needs = 'Requires = ["store"]\nAfter = ["store"]'
    slow = {"store": Program(obeys_after_sec=5.0)}
    async with running(tmp_path, slow, store=file("store") + never, web=file("web", unit=needs)) as world:
        world.write(store=file("store", "2") + never)
        assert (await world.actions())["store"] == "restart"
        await trio.sleep(10)
        assert world.unit("web").state.sub_state is SubState.WAITING
        world.outputs["store"].write("ready")
        await world.unit("web").wait_until(lambda state: state.state is RunState.ACTIVE)


async def test_a_stop_goes_by_what_a_reload_has_said(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, web=file("web")) as world:
        world.write(web=file("web", service='KillMode = "process"\nKillSignal = "SIGINT"\nSendSIGKILL = false'))
        assert await world.actions() == {"web": "apply"}
        await world.pod.units.stop("web", asked_by="operator", reason="asked for")
        ladder = world.processes.ladders[-1]
        assert (ladder.mode, ladder.signal, ladder.send_sigkill) == ("process", "SIGINT", False)


async def test_nobody_starts_a_unit_that_is_gone(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, web=file("web"), old=file("old")) as world:
        gone = world.unit("old")
        world.write(old=None)
        await world.reload()
        await trio.sleep(1)
        with pytest.raises(StartFailed):
            await gone.start(asked_by="somebody who still knows it")


async def test_a_start_is_judged_by_what_it_began_with(tmp_path: Path, autojump_clock: MockClock) -> None:
    ready = '[Readiness]\nLogLine = "ready"\n'
    async with running(tmp_path, web=file("web", service='TimeoutStartSec = 100\nRestart = "no"') + ready) as world:
        world.write(web=file("web", service='TimeoutStartSec = 200\nStartStallSec = 1\nRestart = "no"') + ready)
        assert await world.actions() == {"web": "apply"}
        await trio.sleep(50)
        assert world.unit("web").rules.start.stall_sec is None
        world.outputs["web"].write("ready")
        await world.unit("web").wait_until(lambda state: state.state is RunState.ACTIVE)
        assert world.unit("web").rules.start.stall_sec == 1.0


async def test_one_reload_at_a_time(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, {"web": Program(obeys_after_sec=5.0)}, web=file("web")) as world:
        world.write(web=file("web", "2"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.reload)
            await world.unit("web").wait_until(lambda state: state.state is RunState.DEACTIVATING)
            with pytest.raises(Refused, match="asked for by operator is being carried out: ask again later"):
                await world.reload()
        assert await world.actions() == {"web": "nothing"}


async def test_a_sighup_during_a_reload_is_carried_out_after_it_once(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with running(tmp_path, {"web": Program(obeys_after_sec=5.0)}, web=file("web")) as world:
        world.write(web=file("web", "2"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.reload)
            await world.unit("web").wait_until(lambda state: state.state is RunState.DEACTIVATING)
            world.write(web=file("web", "3"))
            world.pod.reloads.hang_up()
            world.pod.reloads.hang_up()
            await trio.sleep(1)
            assert "SIGHUP" not in caplog.text
        await trio.sleep(100)
        assert (world.order[0], world.order[-1], world.order.count("web 3")) == ("web", "web 3", 1)


async def test_a_sighup_with_wrong_files_says_why(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, web=file("web")) as world:
        world.write(web="[Service]\nExecStrat = 1\n")
        world.pod.reloads.hang_up()
        await trio.sleep(1)
        assert "web.toml:2: Service.ExecStrat: unknown key 'ExecStrat'" in caplog.text
        assert world.unit("web").state.state is RunState.ACTIVE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{file("web")}[Readiness]\nLogLine = "a{{99999999999999999999}}"\n', "the repetition number is too large"),
        (f"{file('web')}X = {'[' * 3000}{']' * 3000}\n", "tables and arrays are nested too deep"),
        (f"{file('web')}LimitNOFILE = {'9' * 5000}\n", "value has 5000 digits"),
    ],
    ids=["regular expression", "depth", "digits"],
)
async def test_a_file_that_is_too_much_for_its_parser_is_a_wrong_file(
    text: str, said: str, tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, web=file("web"), store=file("store")) as world:
        pids = {name: world.pid(name) for name in ("web", "store")}
        world.write(web=text)
        for dry_run in (True, False):
            with pytest.raises(WrongFiles) as wrong:
                await world.reload(dry_run=dry_run)
            (problem,) = wrong.value.body.problems
            assert Path(problem.path).name == "web.toml"
            assert said in problem.message
        world.pod.reloads.hang_up()
        await trio.sleep(1)
        assert "reload asked for by SIGHUP: wrong files, nothing was changed" in caplog.text
        assert {name: world.pid(name) for name in pids} == pids


async def test_an_error_of_our_own_costs_one_reload_and_no_unit(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, web=file("web")) as world:

        async def broken() -> Files:
            raise KeyError("a bug")

        pid = world.pid("web")
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(world.pod.reloads, "_read", broken)
            with pytest.raises(Refused, match="internal error: KeyError: 'a bug'"):
                await world.reload()
            world.pod.reloads.hang_up()
            await trio.sleep(1)
        assert "reload asked for by SIGHUP: internal error" in caplog.text
        assert "Traceback" in caplog.text
        assert world.pid("web") == pid
        world.write(store=file("store"))
        assert await world.actions() == {"store": "start", "web": "nothing"}


async def test_a_disk_that_hangs_costs_one_reload_and_not_all_later_ones(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, store=file("store")) as world:

        async def hang() -> Files:
            await trio.sleep_forever()
            raise AssertionError

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(world.pod.reloads, "_read", hang)
            for dry_run in (False, True):
                with pytest.raises(Refused, match="could not be read within"), trio.fail_after(600):
                    await world.reload(dry_run=dry_run)
        world.write(web=file("web"))
        assert await world.actions() == {"store": "nothing", "web": "start"}


async def test_what_is_held_back_makes_no_circle_with_what_is_new(tmp_path: Path, autojump_clock: MockClock) -> None:
    engine = '[Service]\nExecStart = ["engine"]\n[Engine]\nLauncher = "exec"\n'
    router = file("router", unit='PartOf = ["store"]')
    async with running(tmp_path, {"router": Program()}, router=router, store=file("store")) as world:
        world.write(
            engine=engine,
            router=file("router", unit='Requires = ["engine"]'),
            store=file("store", unit='PartOf = ["router"]'),
        )
        with pytest.raises(WrongFiles, match="in a circle beside the units that are held back: router follows store"):
            await world.reload()


async def test_who_asked_may_go_away(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, {"web": Program(obeys_after_sec=5.0)}, web=file("web")) as world:
        world.write(web=file("web", "2"))
        with trio.move_on_after(1.0):
            await world.reload()
        await world.unit("web").wait_until(lambda state: state.started == 2)
        assert world.order == ["web", "web 2"]


async def test_while_the_pod_ends_a_reload_starts_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, {"web": Program(obeys_after_sec=5.0)}, web=file("web")) as world:
        world.write(web=file("web", "2"), new=file("new"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.reload)
            await world.unit("web").wait_until(lambda state: state.state is RunState.DEACTIVATING)
            world.ending.request(EXIT_OK, "SIGTERM received")
            nursery.start_soon(world.pod.stop, trio.current_time() + 60)
        assert (world.order, world.names()) == (["web"], {"web"})


async def test_a_pod_that_leaves_is_not_reloaded(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, web=file("web")) as world:
        world.write(web=file("web", "2"), new=file("new"))
        await world.pod.drain("asked for by operator")
        with pytest.raises(Refused, match=r"this pod leaves .asked for by operator.: nothing is reloaded any more"):
            await world.reload()
        world.pod.reloads.hang_up()
        await trio.sleep(10)
        assert "SIGHUP: this pod leaves" in caplog.text
        assert (world.order, world.names()) == (["web"], {"web"})


async def test_what_has_survived_is_named(tmp_path: Path, autojump_clock: MockClock) -> None:
    hopeless = {"old": Program(obeys_after_sec=None, unkillable=True)}
    async with running(tmp_path, hopeless, old=file("old"), web=file("web")) as world:
        world.write(old=None)
        view = await world.reload()
        assert [survivor.partition(":")[0] for survivor in view.survivors] == ["old"]
        assert world.names() == {"web"}


async def test_settings_are_compared_and_not_applied(tmp_path: Path, autojump_clock: MockClock) -> None:
    config = tmp_path / "podvisor" / "podvisor.toml"
    config.parent.mkdir()
    config.write_text("[supervisor]\n")
    async with running(tmp_path, web=file("web")) as world:
        configuration = world.pod._configuration
        world.pod._configuration = type(configuration)(
            **{name: getattr(configuration, name) for name in configuration.__struct_fields__ if name != "options"},
            options=Options(config, configuration.options.units, configuration.options.socket),
        )
        assert (await world.reload()).settings == ()
        config.write_text("[supervisor]\nsuicide_threshold = 7\n")
        assert (await world.reload()).settings == ("supervisor.suicide_threshold",)


async def test_a_rank_of_a_gang_is_marked_and_relaunched_with_what_it_ran_with(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    endpoint = Endpoint(id=0, ip=IP, business_port="10000", mgmt_port="10000")
    placement = partial(
        StartCmdMsg, job_name="llama", role="union", instance_id=7, endpoints=(endpoint,), master_dp_ip=IP
    )
    async with running(tmp_path, None, COORDINATED, store=file("store"), engine=ENGINE.format("")) as world:
        assert world.pod.supervision is not None
        operator = world.pod.supervision.operator
        await operator.command(placement(epoch=1))
        await operator.changed.wait_until(lambda: operator.state, lambda state: state.step is Step.DONE)
        pid = world.pid("engine")
        world.write(engine=ENGINE.format(', "-v"'))
        view = await world.reload()
        assert [(unit.name, unit.action) for unit in view.units] == [("engine", "hold"), ("store", "nothing")]
        assert "waits for a rollout" in view.units[0].reason
        assert world.pid("engine") == pid
        assert world.unit("engine").view(trio.current_time()).changed == ("Service.ExecStart",)
        await operator.command(placement(epoch=2))
        assert world.order[-1] == "engine"
        world.write(engine=ENGINE.format(""))
        await world.reload()
        assert world.unit("engine").view(trio.current_time()).changed == ()


async def test_a_rank_whose_condition_is_taken_away_is_prepared_after_all(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    skipped = ENGINE.format("").replace("[Unit]", '[Unit]\nConditionEnvironment = "NOT_HERE"')
    async with running(tmp_path, None, COORDINATED, store=file("store"), engine=skipped) as world:
        supervision = world.pod.supervision
        assert supervision is not None
        assert not supervision.node_manager.prepared
        world.write(engine=ENGINE.format(""))
        assert await world.actions() == {"engine": "apply", "store": "nothing"}
        await trio.sleep(5)
        assert supervision.node_manager.prepared


async def test_a_standalone_engine_is_restarted_in_its_next_epoch(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, store=file("store"), engine=ENGINE.format("")) as world:
        store = world.pid("store")
        world.write(engine=ENGINE.format(', "-v"'))
        assert await world.actions() == {"engine": "restart", "store": "nothing"}
        await world.unit("engine").wait_until(lambda state: state.state is RunState.ACTIVE)
        assert world.pod.supervision is not None
        assert (world.unit("engine").epoch, world.order[-1], world.pid("store")) == (2, "engine -v", store)
        assert [each.counted for each in world.pod.supervision.node_manager.judgements().values()] == [None]


async def test_each_endpoint_of_an_engine_is_a_unit_and_their_number_is_settled(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    several = ENGINE + "Endpoints = {}\n"
    async with running(tmp_path, store=file("store"), engine=several.format("", 2)) as world:
        world.write(engine=several.format(', "-v"', 2))
        assert await world.actions() == {"engine@0": "restart", "engine@1": "restart", "store": "nothing"}
        await world.unit("engine@1").wait_until(lambda state: state.state is RunState.ACTIVE)
        assert world.order[-2:] == ["engine -v", "engine -v"]
        world.write(engine=several.format(', "-v"', 3))
        assert await world.actions() == {
            "engine@0": "hold",
            "engine@1": "hold",
            "engine@2": "hold",
            "store": "nothing",
        }
        assert world.names() == {"engine@0", "engine@1", "store"}


async def test_what_is_part_of_a_restarted_unit_is_stopped_before_it_and_comes_back(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    web = file("web", unit='PartOf = ["store"]\nAfter = ["store"]')
    async with running(tmp_path, {"web": Program(obeys_after_sec=5.0)}, store=file("store"), web=web) as world:
        world.write(store=file("store", "more"))
        store = world.pid("store")
        with trio.move_on_after(1.0):
            await world.reload()
        assert world.unit("web").state.sub_state is SubState.STOP_TERM
        assert world.pid("store") == store, "it goes on until the other has stopped"
        await trio.sleep(10)
        assert world.order == ["store", "web", "store more", "web"]
        assert world.unit("web").state.sub_state is SubState.READY


async def test_what_is_part_of_a_restarted_unit_may_be_gone_from_the_files(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    web = file("web", unit='PartOf = ["store"]\nAfter = ["store"]')
    async with running(tmp_path, store=file("store"), web=web, old=file("old")) as world:
        world.write(store=file("store", "more"), web=None)
        await world.actions()
        await trio.sleep(1)
        assert world.names() == {"store", "old"}
        world.processes.crash(world.pid("store") or 0, FAILED)
        await trio.sleep(1)
        assert world.order.count("store more") == 2
        assert world.order.count("web") == 1
        assert world.unit("store").state.sub_state is SubState.READY
