"""The tests of vLLM see what an engine leaves behind: these are the eyes with which they look."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.engines.vllm.gang import ENGINE, Look, strangers
from tests.engines.vllm.pod_look import PodLook, Process, left_behind


def process(pid: int, parent: int, title: str, started: float = 1.0, status: str = "sleeping") -> Process:
    return Process(pid=pid, parent=parent, started=started, title=title, status=status, resident=1, files=1)


INIT, STORE = process(1, 0, "podvisor run"), process(20, 1, "redis-server")
OLD = (process(30, 1, "vllm serve"), process(31, 30, "VLLM::EngineCore"))
NEW = (process(40, 1, "vllm serve", 9.0), process(41, 40, "VLLM::EngineCore", 9.0))
BEFORE = PodLook("pod0", (INIT, STORE, *OLD), ((8000, 30), (6379, 20)), ("psm_old",), ("old-socket",))
AFTER = PodLook("pod0", (INIT, STORE, *NEW), ((8000, 40), (6379, 20)), ("psm_new",), ("new-socket",))


def test_a_clean_relaunch_has_left_nothing() -> None:
    assert left_behind(OLD, BEFORE, AFTER) == []


LEFT = {
    "process 31": replace(AFTER, processes=(*AFTER.processes, replace(OLD[1], parent=1))),
    "zombie 50": replace(AFTER, processes=(*AFTER.processes, process(50, 1, "", 5.0, "zombie"))),
    "port 29510 of 31": replace(AFTER, listening=(*AFTER.listening, (29510, 31))),
    "port 29510 of nobody": replace(AFTER, listening=(*AFTER.listening, (29510, 0))),
    "segment psm_old": replace(AFTER, segments=("psm_old", "psm_new")),
    "socket old-socket": replace(AFTER, sockets=("old-socket",)),
}


@pytest.mark.parametrize("what", LEFT)
def test_it_is_seen_that_something_is_left(what: str) -> None:
    (seen,) = left_behind(OLD, BEFORE, LEFT[what])
    assert seen.startswith(what)


def test_a_pid_that_is_used_again_is_another_process() -> None:
    again = replace(AFTER, processes=(*AFTER.processes, process(31, 40, "VLLM::Worker", 9.5)))
    assert left_behind(OLD, BEFORE, again) == []


def test_an_orphan_belongs_to_no_unit() -> None:
    orphan = process(77, 1, "VLLM::Worker_TP1", 9.0)
    pids = ({"supervisor": 1, "redis": 20, ENGINE: 40},)
    assert strangers(Look((AFTER,), pids), 0) == []
    with_orphan = replace(AFTER, processes=(*AFTER.processes, orphan))
    assert strangers(Look((with_orphan,), pids), 0) == [str(orphan)]
