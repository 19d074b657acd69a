"""The main job, end to end: a killed engine is relaunched in place, in every pod of its instance.

Real llama-server, Redis and node-exporter, podvisor as PID 1 in each pod, a controller beside them.
"""

import pytest

from controller.demo.engines import GGML_RPC_SERVER, LLAMA_SERVER
from tests.pods.harness import FALLBACK_ENGINE, Cluster, Tables, eventually
from tests.pods.stage import (
    ONE_EACH,
    OWN_MODEL,
    QUICK,
    RESTART_ALL,
    STAYS,
    Stage,
    banners,
    complete,
    is_active,
    is_active_again,
    is_gone,
    kill_engine,
    kill_process,
    kill_supervisor,
    pids,
    relaunches,
    statuses,
    stdout,
)

pytestmark = pytest.mark.pods


@pytest.mark.seed("S01")
@pytest.mark.seed("S02")
@pytest.mark.seed("S21")
@pytest.mark.seed("S26")
@pytest.mark.seed("S27")
@pytest.mark.seed("S31")
@pytest.mark.seed("S32")
async def test_S27_a_killed_engine_is_relaunched_in_place_in_both_pods(stage: Stage) -> None:
    async with stage.gang(LLAMA_SERVER, supervisor_settings=ONE_EACH) as running:
        first = await running.instance(is_active)
        said = [await complete(running, rank) for rank in (0, 1)]
        before = [await pids(running, rank) for rank in (0, 1)]
        assert banners(running, 0) == banners(running, 1) == []

        await kill_engine(running, 0)
        second = await running.instance(is_active_again(first))

        assert second["epoch"] == first["epoch"] + 1
        assert second["id"] == first["id"]
        after = [await pids(running, rank) for rank in (0, 1)]
        for rank in (0, 1):
            assert [line[:20] for line in banners(running, rank)] == ["[ENGINE RELAUNCH #1]"]
            assert f"epoch={second['epoch']}" in banners(running, rank)[0]
            assert after[rank]["engine"] != before[rank]["engine"]
            for name in (*STAYS, "supervisor"):
                assert after[rank][name] == before[rank][name], name
            assert running.supervisors[rank].restart_count == 0
            assert await is_gone(running, rank, before[rank]["engine"])
            assert await complete(running, rank) == said[rank]
        runs = (await running.from_controller("/v1/relaunches"))["relaunches"]
        assert [run["outcome"] for run in runs] == ["done", "done"]
        assert [run["reason"] for run in runs] == ["fault", "assemble"]
        reports = [stdout(running, rank).count("death report taken") for rank in (0, 1)]
        assert reports == [1, 0], "its exit and its status in heartbeats tell of one death"


@pytest.mark.seed("S27")
async def test_F22_a_silent_half_is_noticed_and_both_halves_are_relaunched(stage: Stage) -> None:
    """Pod 1 holds the tensors and serves no HTTP; without it, `/health` in pod 0 stays 200."""
    async with stage.gang(LLAMA_SERVER, GGML_RPC_SERVER, supervisor_settings=QUICK) as running:
        first = await running.instance(is_active)
        said = await complete(running, 0)
        before = [await pids(running, rank) for rank in (0, 1)]

        await kill_engine(running, 1)
        second = await running.instance(is_active_again(first))

        after = [await pids(running, rank) for rank in (0, 1)]
        assert second["epoch"] == first["epoch"] + 1
        for rank in (0, 1):
            assert after[rank]["engine"] != before[rank]["engine"]
            assert len(banners(running, rank)) == 1
            assert running.supervisors[rank].restart_count == 0
        assert await complete(running, 0) == said


@pytest.mark.seed("S03")
@pytest.mark.seed("S23")
async def test_S03_an_unreachable_supervisor_means_containers_restart_at_once(stage: Stage) -> None:
    """The link of the healthy pod is cut: phase 2, both containers leave with 255, and both come together again."""
    async with stage.gang(LLAMA_SERVER, supervisor_settings=ONE_EACH, controller_settings=RESTART_ALL) as running:
        network = running.network
        first = await running.instance(is_active)
        engine = (await pids(running, 0))["engine"]  # asked for before: what is cut off for long counts as lost
        await network.cut(network.pods[1])
        await kill_process(running, 0, engine)
        await eventually(lambda: lives(running, 0), lambda codes: codes == [255], "pod 0 to leave with 255")
        await network.heal(network.pods[1])
        second = await running.instance(is_active_again(first))

        assert running.supervisors[0].exit_codes == [255]
        assert running.supervisors[1].exit_codes == [255]
        assert second["id"] == first["id"]
        for rank in (0, 1):
            await complete(running, rank)


@pytest.mark.seed("S28")
@pytest.mark.seed("S26")
async def test_S28_a_killed_supervisor_costs_the_other_pod_its_engine_and_nothing_else(stage: Stage) -> None:
    async with stage.gang(LLAMA_SERVER, supervisor_settings=ONE_EACH) as running:
        first = await running.instance(is_active)
        said = [await complete(running, rank) for rank in (0, 1)]
        before = await pids(running, 1)

        kill_supervisor(running, 0)
        second = await running.instance(is_active_again(first))

        assert second["id"] == first["id"]
        assert running.supervisors[0].restart_count == 1
        assert running.supervisors[1].exit_codes == []
        after = await pids(running, 1)
        for name in (*STAYS, "supervisor"):
            assert after[name] == before[name], name
        assert after["engine"] != before["engine"]
        assert await is_gone(running, 1, before["engine"])
        assert [len(banners(running, rank)) for rank in (0, 1)] == [0, 1]
        assert [await complete(running, rank) for rank in (0, 1)] == said
        assert [status for status in statuses(running) if status != "initial"] == ["active", "inactive", "active"]
        assert [run["reason"] for run in await relaunches(running)] == ["rejoin", "assemble"]


@pytest.mark.seed("S28")
@pytest.mark.seed("S23")
async def test_S28_with_restart_all_the_other_container_restarts_too_and_nothing_oscillates(stage: Stage) -> None:
    async with stage.gang(LLAMA_SERVER, supervisor_settings=ONE_EACH, controller_settings=RESTART_ALL) as running:
        first = await running.instance(is_active)
        kill_supervisor(running, 0)
        second = await running.instance(is_active_again(first))

        assert second["id"] == first["id"]
        assert running.supervisors[1].exit_codes == [255]
        for rank in (0, 1):
            assert running.supervisors[rank].restart_count == 1
            await complete(running, rank)
        assert [status for status in statuses(running) if status != "initial"] == ["active", "inactive", "active"]


async def lives(running: Cluster, rank: int) -> list[int]:
    return list(running.supervisors[rank].exit_codes)


@pytest.mark.seed("S13")
@pytest.mark.seed("S15")
async def test_S13_with_the_switch_off_the_arbiter_ends_the_supervisor(stage: Stage) -> None:
    off: Tables = {"fault_tolerance_config": {"enable_engine_relaunch": False}}
    async with stage.gang(
        LLAMA_SERVER, pods=1, controller_settings=off, supervisor_settings={**QUICK, **off}
    ) as running:
        first = await running.instance(is_active)
        await kill_engine(running, 0)
        await eventually(lambda: lives(running, 0), lambda codes: codes == [255], "the container to leave with 255")
        log = running.supervisors[0].logs[0].read_text(errors="replace")
        assert "abnormal for 5 x 0.5 s" in log
        assert "frozen for" not in log
        assert banners(running, 0) == []
        await running.instance(is_active_again(first))


@pytest.mark.seed("S05")
async def test_an_engine_that_cannot_start_ends_in_phase_2_and_not_in_a_loop(stage: Stage) -> None:
    """The model disappears while it is served: what the budget allows is tried in place, then the containers restart,
    and when that does not help either the instance is held, idle, for somebody to look at."""
    budget: Tables = {
        "fault_tolerance_config": {
            "engine_relaunch_poll_interval_sec": 0.2,
            "engine_relaunch_max_attempts": 2,
            "engine_relaunch_backoff_sec": 0.5,
        }
    }
    async with stage.gang(
        LLAMA_SERVER, own_models=True, controller_settings=budget, supervisor_settings=ONE_EACH
    ) as running:
        await running.instance(is_active)
        for pod in running.network.pods:
            (pod.volume / OWN_MODEL).unlink()
        await kill_engine(running, 0)
        runs = await eventually(
            lambda: relaunches(running), lambda found: any(run["outcome"] == "held" for run in found), "held"
        )
        reasons = [(run["reason"], run["outcome"]) for run in reversed(runs)]
        assert reasons[0] == ("assemble", "done")
        in_place = [run for run in runs if run["reason"] == "fault"]
        assert 1 <= len(in_place) <= 3, reasons
        assert in_place[0]["phase"] == 2, "the last one in place ends in phase 2"
        for rank in (0, 1):
            codes = running.supervisors[rank].exit_codes
            assert codes, "phase 2 restarts the container"
            assert set(codes) == {255}
        await running.instance(lambda found: found["reason"].startswith("held: "))
        held = len(running.supervisors[0].exit_codes)
        view = await running.podvisor(0, "status")
        engine = next(unit for unit in view["units"] if unit["name"] == "engine")
        assert engine["pid"] is None
        assert len(running.supervisors[0].exit_codes) == held, "held: idle, nothing counts, nothing restarts"


@pytest.mark.seed("S29")
@pytest.mark.seed("S22")
async def test_S29_a_grandchild_that_left_the_session_is_gone_before_the_new_engine(stage: Stage) -> None:
    """It holds the engine's port, as EngineCore of a killed API server does."""
    engine = f"""
[Service]
ExecStart = ["python3", "-I", "{FALLBACK_ENGINE}", "--host=${{POD_IP}}", "--port=${{PORT}}", "--grandchild-holds-port"]
[Engine]
Launcher = "exec"
[Readiness]
Http = "http://${{POD_IP}}:${{PORT}}/health"
"""
    async with stage.gang(engine=engine, supervisor_settings=ONE_EACH) as running:
        first = await running.instance(is_active)
        await kill_engine(running, 0)
        second = await running.instance(is_active_again(first))
        assert second["epoch"] == first["epoch"] + 1
        assert running.supervisors[0].restart_count == 0
        assert await engine_processes(running, 0) == 2


async def engine_processes(running: Cluster, rank: int) -> int:
    """The engine and its grandchild of the present epoch; an old one would be a third."""
    container = running.supervisors[rank].container
    assert container is not None
    done = await container.exec(["sh", "-c", "grep -zl fallback_engin[e] /proc/[0-9]*/cmdline | wc -l"])
    return int(done.output.strip())
