"""The invariants of the protocol, over what was seen from outside. No clock, no process, no network here.

`unrest` says what keeps the world from being at rest; `judge` what was seen that may never be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controller.demo.log_lines import seconds
from controller.events import ControllerEvent
from supervisor.wire import EndpointStatus
from tests.chaos.faults import Stage, Strike
from tests.chaos.reach import RESTARTED, Reach, reach_of_strike
from tests.chaos.seen import ENGINE, STORE, SUPERVISOR, Look, PodLook, Process, Watched

ACTIVE = "active"
ENGINE_PORT = 10000
LOAD_SEC = 0.3
"""How long an engine answers that it is loading."""
BUDGET_SPENT = "of service in between"
"""What events say of it."""
CLOCK_SEC = 0.05
"""What two clocks of one machine, one of them in ticks, may differ."""


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


def jobs(stage: Stage) -> Mapping[str, tuple[str, ...]]:
    """Pods by the name of the job that is played by them."""
    return {f"job{number}": gang for number, gang in enumerate(stage.gangs)}


def unrest(stage: Stage, look: Look) -> tuple[str, ...]:
    """Why this is not the state in which everything serves and nobody does anything; empty: it is."""
    if look.instances is None:
        return ("no controller leads",)
    found = [reason for job in jobs(stage) for reason in _unrest_of_instance(look, job, stage)]
    found += [reason for pod in stage.pods for reason in _unrest_in_pod(look.pods[pod])]
    found += [f"run {run.id[:8]} of {run.job_name} is open" for run in look.runs if run.outcome is None]
    return tuple(found)


def _unrest_of_instance(look: Look, job: str, stage: Stage) -> Iterator[str]:
    instance = look.instance(job)
    if instance is None:
        yield f"there is no instance {job}"
        return
    if instance.held is not None:
        yield f"{job} is held by {instance.held_by}: {instance.held}"
    if instance.status != ACTIVE:
        yield f"{job} is {instance.status}: {instance.reason}"
    if len(instance.supervisors) != len(jobs(stage)[job]):
        yield f"{job} has {len(instance.supervisors)} members"
    if any(endpoint.status is not EndpointStatus.NORMAL for endpoint in instance.endpoints):
        yield f"endpoints of {job} are {', '.join(endpoint.status for endpoint in instance.endpoints)}"


def _unrest_in_pod(pod: PodLook) -> Iterator[str]:
    if pod.zombies:
        yield f"{pod.name} has {pod.zombies} dead that nobody has reaped"
    if pod.view is None:
        yield f"the supervisor of {pod.name} does not answer"
        return
    for unit in pod.view.units:
        if unit.state != ACTIVE:
            yield f"{unit.name} in {pod.name} is {unit.state}: {unit.reason}"
    if pod.view.supervisor.freeze_remaining_sec > 0:
        yield f"{pod.name} is frozen for {pod.view.supervisor.freeze_remaining_sec:g} s more"
    if not pod.answers:
        yield f"the engine in {pod.name} does not answer"
    if not pod.ready:
        yield f"{pod.name} is not ready"


def held_jobs(look: Look) -> tuple[str, ...]:
    return tuple(found.job_name for found in look.instances or () if found.held is not None)


def judge(stage: Stage, strike: Strike, before: Look, watched: Watched, after: Look) -> tuple[Violation, ...]:
    """`before` and `after` are looks at a world at rest."""
    return (
        *judge_watched(stage, strike, watched),
        *_others_are_not_touched(stage, reach_of_strike(strike, stage), before, after),
        *_journal_is_closed(after),
        *_only_what_belongs_there(stage, after),
    )


def judge_watched(stage: Stage, strike: Strike, watched: Watched) -> tuple[Violation, ...]:
    """What may never be seen, also of a world that does not come to rest."""
    return (
        *_one_epoch_alive(watched),
        *_outdated_is_refused(watched),
        *_one_run_at_a_time(watched),
        *_success_is_no_hope(stage, watched),
        *_no_oscillation(stage, strike, watched),
        *_ends_have_reasons(stage, reach_of_strike(strike, stage), watched),
        *(Violation("bug", trace) for trace in watched.traces),
        *(Violation("bug", f"{asked.what}: 500 {asked.text}") for asked in watched.asked if asked.status == 500),
    )


def _one_epoch_alive(watched: Watched) -> Iterator[Violation]:
    """C2 as the machine tells it: an engine of a new epoch is born when all of the old one are gone, in all pods."""
    for gang, what in sorted(watched.together):
        yield Violation("I1, C2", f"{gang}: {what}")


def _others_are_not_touched(stage: Stage, reach: Reach, before: Look, after: Look) -> Iterator[Violation]:
    for name in stage.pods:
        old, new = before.pods[name], after.pods[name]
        same_life = old.of(SUPERVISOR) == new.of(SUPERVISOR)
        if name not in reach.engines and _mains(old) != _mains(new):
            yield Violation("C4", f"the engine of {name} was relaunched: {_change(old, new, ENGINE)}")
        if same_life and name not in reach.stores and old.of(STORE) != new.of(STORE):
            yield Violation("I3", f"the store of {name} was not left alone: {_change(old, new, STORE)}")


def _mains(pod: PodLook) -> frozenset[tuple[int | None, int]]:
    """Workers may have been killed alone."""
    return frozenset((process.epoch, process.pid) for process in pod.of(ENGINE)[:1])


def _change(old: PodLook, new: PodLook, unit: str) -> str:
    return f"{', '.join(map(str, old.of(unit)))} before, {', '.join(map(str, new.of(unit)))} after"


def _outdated_is_refused(watched: Watched) -> Iterator[Violation]:
    for asked in watched.outdated:
        if asked.status is not None and asked.status != 409:
            yield Violation("I5", f"{asked.what} was answered {asked.status}: {asked.text}")


def _one_run_at_a_time(watched: Watched) -> Iterator[Violation]:
    for job, runs in (watched.runs_at_once or {}).items():
        if runs > 1:
            yield Violation("C1", f"{job} had {runs} open runs")


def _journal_is_closed(after: Look) -> Iterator[Violation]:
    if after.journal is None:
        yield Violation("C4", "the journal cannot be read")
    for job, runs in (after.journal or {}).items():
        if runs:
            yield Violation("C4", f"the journal has {runs} open runs of {job}, the controller has none")


def _becomes(event: ControllerEvent) -> str | None:
    """The status to which this event takes an instance; None: to none."""
    return (
        event.status
        if event.kind == "instance" and event.message.split(":")[0].endswith(f"-> {event.status}")
        else None
    )


def _success_is_no_hope(stage: Stage, watched: Watched) -> Iterator[Violation]:
    """C5: when an instance was said to be ACTIVE, each engine of that epoch had lived for as long as it loads."""
    for event in watched.events:
        if _becomes(event) != ACTIVE or event.job_name is None:
            continue
        for pod, process in watched.engines:
            if pod in jobs(stage)[event.job_name] and process.epoch == event.epoch and _is_main(pod, process, watched):
                lived = seconds(event.at) - process.started
                if lived < LOAD_SEC - CLOCK_SEC:
                    what = f"{event.job_name} was ACTIVE in epoch {event.epoch}, the engine of {pod} {lived:.3f} s old"
                    yield Violation("C5", what)


def _is_main(pod: str, process: Process, watched: Watched) -> bool:
    """Workers are younger than the engine that has them."""
    of_epoch = [other for where, other in watched.engines if where == pod and other.epoch == process.epoch]
    return min(of_epoch, key=Process.birth) == process


def _no_oscillation(stage: Stage, strike: Strike, watched: Watched) -> Iterator[Violation]:
    """C6: an instance becomes ACTIVE again for a reason: once for each fault, once more for its end."""
    most = 2 * len(strike.faults)
    for job in jobs(stage):
        became = [status for event in watched.events if event.job_name == job and (status := _becomes(event))]
        if became.count(ACTIVE) > most:
            yield Violation("C6", f"{job} became {', '.join(became)}")


def _only_what_belongs_there(stage: Stage, after: Look) -> Iterator[Violation]:
    """Seed S29: nothing of an old engine is left, on its port least of all."""
    for job, gang in jobs(stage).items():
        instance = after.instance(job)
        for name in gang:
            pod = after.pods[name]
            for process in pod.processes:
                if process.unit not in (SUPERVISOR, STORE, ENGINE):
                    yield Violation("I1", f"in {name} lives {process}, which is no unit's")
                elif process.unit == ENGINE and instance is not None and process.epoch != instance.epoch:
                    yield Violation("I1", f"in {name} lives {process}; its instance is in epoch {instance.epoch}")
            yield from _one_of_each(pod)


def _one_of_each(pod: PodLook) -> Iterator[Violation]:
    if len(pod.of(STORE)) != 1:
        yield Violation("I3", f"{pod.name} has {len(pod.of(STORE))} stores")
    if not 1 <= len(pod.of(ENGINE)) <= 2:
        yield Violation("I1", f"{pod.name} has {len(pod.of(ENGINE))} engine processes")
    holders = (pod.listeners or {}).get(ENGINE_PORT, frozenset())
    if holders != {pid for _, pid in _mains(pod)}:
        yield Violation(
            "S29", f"port {ENGINE_PORT} of {pod.name} is held by {sorted(holders)}, not by its engine alone"
        )


def _ends_have_reasons(stage: Stage, reach: Reach, watched: Watched) -> Iterator[Violation]:
    """Seed S01: an engine's death is repaired in place, as long as the budget lasts."""
    spent = {event.job_name for event in watched.events if BUDGET_SPENT in event.message}
    fall_back = reach.containers.union(*(gang for job, gang in jobs(stage).items() if job in spent))
    for ended in watched.ended:
        is_fallback = ended.exit_code == RESTARTED and ended.pod in fall_back
        if not is_fallback and (ended.pod, ended.exit_code) not in reach.exits:
            yield Violation("exit code", f"the container of {ended.pod} ended with {ended.exit_code}")
