"""The demo's claims can fail: everything that was seen, changed in one place, breaks the check that is about it."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from controller.demo.claims import CLAIMS, check_all
from controller.demo.log_lines import Line, parse
from controller.demo.narrator import OPERATOR, REPORTER
from controller.demo.seen import Answer, PodSeen, Seen
from supervisor import wire

KILLED_AT = 1_800_000_000.0
BANNER = "[ENGINE RELAUNCH #1] {} epoch=2 instance=7 reason=killed"


def stamp(after: float) -> str:
    return wire.timestamp(datetime.fromtimestamp(KILLED_AT + after, UTC))


def logged(after: float, logger: str, message: str, **fields: object) -> str:
    return json.dumps({"time": stamp(after), "level": "INFO", "logger": logger, "message": message, **fields})


DIED = logged(0.004, OPERATOR, "engine of epoch 1 died: killed by SIGKILL", epoch=1)
TAKEN = logged(0.010, REPORTER, "death report taken: recovery engine_relaunch", epoch=1, run_id="run-2")
FROZEN = logged(0.011, OPERATOR, "death report accepted (run run-2): frozen for at most 60 s", epoch=1)
PREPARED = logged(0.030, OPERATOR, "engine cleaning -> prepared", epoch=2)
STARTING = logged(0.040, OPERATOR, "engine prepared -> starting", epoch=2)
SPAWNED = logged(0.050, OPERATOR, "engine starting -> loading", epoch=2)
DONE = logged(0.200, OPERATOR, "engine loading -> done", epoch=2)
OLD, NEW = "[engine epoch=1 rank=0] listening", "[engine epoch=2 rank=0] listening"
OTHERS_LOG = [OLD, PREPARED, STARTING, BANNER.format(stamp(0.045)), SPAWNED, NEW, DONE]
VICTIMS_LOG = [OLD, DIED, TAKEN, FROZEN, *OTHERS_LOG[1:]]


def lines(pod: str, texts: list[str]) -> tuple[Line, ...]:
    found: list[Line] = []
    for number, text in enumerate(texts):
        found.append(parse(pod, number, text, found[-1].at if found else KILLED_AT))
    return tuple(found)


def pod_seen(name: str, texts: list[str]) -> PodSeen:
    return PodSeen(
        name=name,
        before={"engine": 31, "redis": 20, "node-exporter": 22, "supervisor": 1},
        after={"engine": 45, "redis": 20, "node-exporter": 22, "supervisor": 1},
        restarts=0,
        port=10000,
        port_holders=(45,),
        lines=lines(name, texts),
        answer_before=Answer(200, "noise"),
        answer_after=Answer(200, "noise"),
    )


RUN = wire.RunView(
    id="run-2",
    instance_id=7,
    epoch=2,
    reason="fault",
    outcome="done",
    phase=1,
    steps=tuple(
        wire.RunStepView(name=name, started_at=stamp(0.01), ended_at=stamp(0.02))
        for name in ("probe", "prepare", "start", "await")
    ),
    supervisors=("10.77.0.11:1026", "10.77.0.12:1026"),
)
INSTANCE = wire.InstanceView(
    id=7, job_name="demo", model_name="tiny", role="union", status="active", epoch=2, supervisors=(), endpoints=()
)
GOOD = Seen(
    victim="pod0",
    killed_at=KILLED_AT,
    epoch_before=1,
    pods=(pod_seen("pod0", VICTIMS_LOG), pod_seen("pod1", OTHERS_LOG)),
    runs=(RUN,),
    instance=INSTANCE,
    old_processes_before=2,
    old_processes_after=(),
)

Change = Callable[[Seen], Seen]


def changed(**fields: Any) -> Change:
    return lambda seen: _replace(seen, **fields)


def victim(**fields: Any) -> Change:
    return lambda seen: _replace(seen, pods=(_replace(seen.pods[0], **fields), seen.pods[1]))


def other(**fields: Any) -> Change:
    return lambda seen: _replace(seen, pods=(seen.pods[0], _replace(seen.pods[1], **fields)))


def victims_log(texts: list[str]) -> Change:
    return victim(lines=lines("pod0", texts))


def others_log(texts: list[str]) -> Change:
    return other(lines=lines("pod1", texts))


def run(**fields: Any) -> Change:
    return changed(runs=(msgspec.structs.replace(RUN, **fields),))


def _replace(value: Any, **fields: Any) -> Any:
    return replace(value, **fields)


def without(texts: list[str], text: str) -> list[str]:
    return [one for one in texts if one != text]


def late(text: str, after: float) -> str:
    return json.dumps(json.loads(text) | {"time": stamp(after)})


def test_what_went_well_breaks_nothing() -> None:
    assert [check for check in check_all(GOOD) if not check.held] == []
    assert {check.claim for check in check_all(GOOD)} == set(CLAIMS)


@pytest.mark.parametrize(
    "claim, what, change",
    [
        (1, "sees the death", victims_log(without(VICTIMS_LOG, DIED))),
        (1, "sees the death", victims_log([OLD, late(DIED, 3.0), *VICTIMS_LOG[2:]])),
        (1, "sees the death", victims_log([text.replace("SIGKILL", "SIGSEGV") for text in VICTIMS_LOG])),
        (1, "takes its report", victims_log(without(VICTIMS_LOG, TAKEN))),
        (1, "takes its report", victims_log([text.replace("y engine_relaunch", "y none") for text in VICTIMS_LOG])),
        (1, "takes its report", victims_log([text.replace('"run-2"', '"run-1"') for text in VICTIMS_LOG])),
        (1, "freezes after", victims_log(without(VICTIMS_LOG, FROZEN))),
        (1, "freezes after", victims_log([OLD, FROZEN, *without(VICTIMS_LOG[1:], FROZEN)])),
        (2, "one run", changed(runs=())),
        (2, "one run", changed(runs=(RUN, msgspec.structs.replace(RUN, epoch=3)))),
        (2, "one run", run(outcome="phase2", phase=2)),
        (2, "one run", run(outcome=None)),
        (2, "one run", run(epoch=3)),
        (2, "probe, prepare", run(steps=RUN.steps[:3])),
        (2, "probe, prepare", run(steps=(*RUN.steps[:3], msgspec.structs.replace(RUN.steps[3], error="died")))),
        (2, "probe, prepare", run(supervisors=("10.77.0.11:1026",))),
        (2, "no engine starts", others_log(without(OTHERS_LOG, PREPARED))),
        (2, "no engine starts", others_log([OLD, late(PREPARED, 0.045), *OTHERS_LOG[2:]])),
        (2, "pod1 prints", others_log([text for text in OTHERS_LOG if "RELAUNCH" not in text])),
        (2, "pod1 prints", others_log([text.replace("#1]", "#2]") for text in OTHERS_LOG])),
        (2, "pod1 prints", others_log([*OTHERS_LOG, OTHERS_LOG[3]])),
        (2, "pod1 prints", others_log([*OTHERS_LOG, OLD])),
        (2, "pod1 prints", others_log([OLD, NEW, *OTHERS_LOG[1:]])),
        (3, "ACTIVE", changed(instance=None)),
        (3, "ACTIVE", changed(instance=msgspec.structs.replace(INSTANCE, status="inactive"))),
        (3, "ACTIVE", changed(instance=msgspec.structs.replace(INSTANCE, epoch=1))),
        (3, "pod0 has a new engine", victims_log(without(VICTIMS_LOG, DONE))),
        (3, "pod1 has a new engine", other(after={**GOOD.pods[1].before}, port_holders=(31,))),
        (3, "pod0 has a new engine", victim(after={**GOOD.pods[0].after, "engine": None})),
        (3, "pod1 answers", other(answer_after=Answer(None, "refused"))),
        (3, "pod1 answers", other(answer_after=Answer(503, "loading"))),
        (3, "pod0 answers", victim(answer_before=Answer(200, ""))),
        (4, "pod1: everything but", other(after={**GOOD.pods[1].after, "redis": 99})),
        (4, "pod1: everything but", other(after={"engine": 45, "redis": 20, "node-exporter": 22})),
        (4, "pod1: everything but", other(before={"engine": 31, "supervisor": 1})),
        (4, "pod1: everything but", other(before={}, after={})),
        (4, "no container", victim(restarts=1)),
        (4, "no process", changed(old_processes_after=("4711 (10.77.0.11, epoch 1)",))),
        (4, "no process", changed(old_processes_before=0)),
        (4, "pod0: port", victim(port_holders=(45, 31))),
        (4, "pod0: port", victim(port_holders=())),
    ],
)  # fmt: skip
def test_each_check_can_fail(claim: int, what: str, change: Change) -> None:
    broken = [check for check in check_all(change(GOOD)) if not check.held]
    assert any(check.claim == claim and what in check.what for check in broken), broken


def test_the_silent_half_is_not_asked_for_answers() -> None:
    checks = check_all(other(answer_before=None, answer_after=None)(GOOD))
    assert all(check.held for check in checks)
    assert not any("pod1 answers" in check.what for check in checks)
