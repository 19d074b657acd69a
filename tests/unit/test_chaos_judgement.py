"""The chaos program's judge: a world at rest is at rest, and each invariant that is broken is found by its name."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import structs

from controller.events import ControllerEvent
from supervisor import wire
from supervisor.wire import EndpointStatus
from tests.chaos.faults import Ask, Fault, FullDisk, Kill, Restart, Stage, Strike, Timed, Verb, Whom
from tests.chaos.judgement import ENGINE_PORT, judge, unrest
from tests.chaos.seen import ENGINE, STORE, SUPERVISOR, Asked, Ended, Look, PodLook, Process, Watched

STAGE = Stage((("pod0", "pod1"), ("pod2",)), ("controller0",))
NOW = 1_800_000_000.0
QUIET = Watched()


def strike(*faults: Fault) -> Strike:
    return Strike(0, tuple(Timed(0, fault) for fault in faults))


NOTHING = strike(Ask("pod0", Verb.RELOAD))
ENGINE_DIES = strike(Kill("pod0", Whom.ENGINE))


def processes(pod: str, epoch: int = 1) -> tuple[Process, ...]:
    first = 100 * (int(pod[-1]) + 1)
    return (
        Process(first, NOW - 100, SUPERVISOR),
        Process(first + 1, NOW - 90, STORE),
        Process(first + 10 * epoch, NOW - 50 + epoch, ENGINE, epoch),
        Process(first + 10 * epoch + 1, NOW - 50 + epoch, ENGINE, epoch),
    )


def unit(name: str, state: str = "active") -> wire.UnitView:
    return wire.UnitView(name=name, type="exec", state=state, sub_state="", pid=1, since="", restarts=0)


def supervisor(**fields: object) -> wire.SupervisorView:
    return structs.replace(wire.SupervisorView(pid=1, version="1", boot_id="b", uptime_sec=1.0), **fields)


def pod(name: str, *, epoch: int = 1) -> PodLook:
    alive = processes(name, epoch)
    return PodLook(
        name,
        alive,
        listeners={ENGINE_PORT: frozenset({alive[2].pid}), 6379: frozenset({alive[1].pid})},
        view=wire.UnitsView(units=(unit(ENGINE), unit(STORE)), supervisor=supervisor()),
        answers=True,
        ready=True,
    )


def instance(job: str, members: int, *, epoch: int = 1, **fields: object) -> wire.InstanceView:
    member = wire.MemberView(
        pod_ip="10.0.0.1", port=1, node_rank=0, boot_id="b", heartbeat_age_sec=0, freeze_remaining_sec=0
    )
    endpoint = wire.InstanceEndpointView(id=0, ip="10.0.0.1", port=1, status=EndpointStatus.NORMAL)
    view = wire.InstanceView(
        id=1,
        job_name=job,
        model_name="m",
        role="union",
        status="active",
        epoch=epoch,
        supervisors=(member,) * members,
        endpoints=(endpoint,) * members,
    )
    return structs.replace(view, **fields)


def look(epoch: int = 1, **pods: PodLook) -> Look:
    """At rest, but for what is said otherwise; `epoch` is that of the first gang."""
    found = {"pod0": pod("pod0", epoch=epoch), "pod1": pod("pod1", epoch=epoch), "pod2": pod("pod2"), **pods}
    return Look(found, (instance("job0", 2, epoch=epoch), instance("job1", 1)), journal={})


def with_processes(name: str, *more: Process, epoch: int = 1) -> PodLook:
    return replace(pod(name, epoch=epoch), processes=(*processes(name, epoch), *more))


def broken(
    fault: Strike = NOTHING, *, watched: Watched = QUIET, before: Look | None = None, after: Look | None = None
) -> list[str]:
    return [found.invariant for found in judge(STAGE, fault, before or look(), watched, after or look())]


def active(epoch: int, at: float, job: str = "job0") -> ControllerEvent:
    when = wire.timestamp(datetime.fromtimestamp(at, UTC))
    words = "inactive -> active: all endpoints are normal"
    return ControllerEvent(
        id=1, at=when, kind="instance", level="info", message=words, job_name=job, status="active", epoch=epoch
    )


def test_a_world_at_rest_to_which_nothing_happened_is_beyond_reproach() -> None:
    assert unrest(STAGE, look()) == ()
    assert broken() == []


def test_a_relaunch_of_the_gang_that_was_hit_is_no_violation() -> None:
    assert broken(ENGINE_DIES, after=look(epoch=2)) == []


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (replace(look(), instances=None), "no controller leads"),
        (replace(look(), instances=(instance("job1", 1),)), "there is no instance job0"),
        (replace(look(), instances=(instance("job0", 1), instance("job1", 1))), "job0 has 1 members"),
        (look(pod0=replace(pod("pod0"), view=None)), "the supervisor of pod0 does not answer"),
        (look(pod0=replace(pod("pod0"), answers=False)), "the engine in pod0 does not answer"),
        (look(pod0=replace(pod("pod0"), ready=False)), "pod0 is not ready"),
        (look(pod0=replace(pod("pod0"), zombies=2)), "pod0 has 2 dead that nobody has reaped"),
        (
            look(
                pod1=replace(pod("pod1"), view=wire.UnitsView(units=(unit(STORE, "failed"),), supervisor=supervisor()))
            ),
            "redis in pod1 is failed: ",
        ),
        (
            look(
                pod1=replace(
                    pod("pod1"), view=wire.UnitsView(units=(), supervisor=supervisor(freeze_remaining_sec=7.0))
                )
            ),
            "pod1 is frozen for 7 s more",
        ),
    ],
)
def test_what_keeps_the_world_from_rest_is_named(found: Look, reason: str) -> None:
    assert reason in unrest(STAGE, found)


def test_a_held_instance_is_not_at_rest() -> None:
    held = instance("job0", 2, status="inactive", held="its containers restarted 3 times", held_by="budget")
    reasons = unrest(STAGE, replace(look(), instances=(held, instance("job1", 1))))
    assert "job0 is held by budget: its containers restarted 3 times" in reasons


def test_I1_engines_of_two_epochs_that_lived_together_are_found() -> None:
    assert broken(watched=Watched(together=frozenset({("job0", "engine 7 of epoch 1 with engine 8 of epoch 2")}))) == [
        "I1, C2"
    ]


def test_I1_an_orphan_that_no_unit_owns_is_found() -> None:
    assert broken(after=look(pod2=with_processes("pod2", Process(999, NOW, "sleep 1000")))) == ["I1"]


def test_I1_an_engine_of_another_epoch_is_found() -> None:
    started_by_hand = Process(999, NOW, ENGINE, 7)
    assert "I1" in broken(after=look(pod2=with_processes("pod2", started_by_hand)))


def test_I3_another_store_in_the_same_container_is_found() -> None:
    supervisor_, _, *engines = processes("pod1")
    other = replace(pod("pod1"), processes=(supervisor_, Process(777, NOW, STORE), *engines))
    assert broken(ENGINE_DIES, after=look(pod1=other)) == ["I3"]


def test_I3_a_new_container_may_have_a_new_store() -> None:
    _, _, *engines = processes("pod1")
    reborn = replace(pod("pod1"), processes=(Process(555, NOW, SUPERVISOR), Process(777, NOW, STORE), *engines))
    assert broken(ENGINE_DIES, after=look(pod1=reborn)) == []


@pytest.mark.parametrize("answer", [200, 202, 500])
def test_I5_an_outdated_command_that_is_not_refused_is_found(answer: int) -> None:
    assert broken(watched=Watched(outdated=(Asked("prepare of epoch 0", answer),))) == ["I5"]


def test_I5_a_refused_one_is_not() -> None:
    assert broken(watched=Watched(outdated=(Asked("prepare of epoch 0", 409), Asked("to nobody", None)))) == []


def test_C1_two_open_runs_of_one_instance_are_found() -> None:
    assert broken(watched=Watched(runs_at_once={"job0": 2, "job1": 1})) == ["C1"]


@pytest.mark.parametrize("fault", [Restart("controller0"), Kill("controller0", Whom.FIRST)])
def test_C4_a_gang_that_is_relaunched_because_the_controller_restarts_is_found(fault: Fault) -> None:
    code = 0 if isinstance(fault, Restart) else 137
    ended = Watched(ended=(Ended("controller0", code),))
    assert broken(strike(fault), watched=ended) == []
    assert broken(strike(fault), watched=ended, after=look(epoch=2)) == ["C4", "C4"]


def test_C4_a_journal_with_an_open_run_at_rest_is_found() -> None:
    assert broken(after=replace(look(), journal={"job0": 1})) == ["C4"]


def test_C4_a_journal_that_cannot_be_read_is_found() -> None:
    assert broken(after=replace(look(), journal=None)) == ["C4"]


def test_C5_success_while_an_engine_loads_is_found() -> None:
    main = processes("pod1", 2)[2]
    engines = frozenset({("pod1", main)})
    late = Watched(engines=engines, events=(active(2, main.started + 1),))
    early = Watched(engines=engines, events=(active(2, main.started + 0.1),))
    assert broken(ENGINE_DIES, watched=late, after=look(epoch=2)) == []
    assert broken(ENGINE_DIES, watched=early, after=look(epoch=2)) == ["C5"]


def test_C6_an_instance_that_comes_and_goes_is_found() -> None:
    assert broken(ENGINE_DIES, watched=Watched(events=(active(2, NOW),) * 2)) == []
    assert broken(ENGINE_DIES, watched=Watched(events=(active(2, NOW),) * 3)) == ["C6"]


def test_S29_a_port_that_somebody_else_holds_is_found() -> None:
    shared = {ENGINE_PORT: frozenset({processes("pod1")[2].pid, 999})}
    assert broken(after=look(pod1=replace(pod("pod1"), listeners=shared))) == ["S29"]


@pytest.mark.parametrize(
    ("fault", "ended", "is_found"),
    [
        (Kill("pod0", Whom.ENGINE), Ended("pod0", 255), True),
        (Kill("pod0", Whom.FIRST), Ended("pod1", 255), False),
        (Kill("pod0", Whom.FIRST), Ended("pod0", 137), False),
        (Kill("pod0", Whom.FIRST), Ended("pod1", 137), True),
        (Kill("pod0", Whom.FIRST), Ended("pod2", 255), True),
        (Kill("pod0", Whom.FIRST), Ended("pod0", 70), True),
        (FullDisk("controller0", 1), Ended("controller0", 78), False),
        (Kill("controller0", Whom.FIRST), Ended("controller0", 78), True),
    ],
)
def test_S01_a_container_that_ends_without_a_reason_is_found(fault: Fault, ended: Ended, is_found: bool) -> None:
    assert broken(strike(fault), watched=Watched(ended=(ended,))) == (["exit code"] if is_found else [])


def test_S01_a_controller_that_is_away_is_a_reason() -> None:
    both = strike(Kill("pod0", Whom.ENGINE), Restart("controller0"))
    assert broken(both, watched=Watched(ended=(Ended("controller0", 0), Ended("pod0", 255)))) == []


def test_S01_a_spent_budget_is_a_reason() -> None:
    told = msgspec.structs.replace(active(2, NOW), message="phase2: 3 relaunches without 3 s of service in between")
    assert broken(ENGINE_DIES, watched=Watched(ended=(Ended("pod1", 255),), events=(told,))) == []
    of_another_gang = Watched(ended=(Ended("pod2", 255),), events=(told,))
    assert broken(ENGINE_DIES, watched=of_another_gang) == ["exit code"]


def test_a_trace_in_a_log_and_an_answer_of_500_are_bugs() -> None:
    assert broken(watched=Watched(traces=("pod0: Traceback",))) == ["bug"]
    assert broken(watched=Watched(asked=(Asked("POST /v1/reload", 500),))) == ["bug"]
