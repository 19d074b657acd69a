"""What the demo claims, as functions over what was seen: no clock, no process, no network here.

Each claim of the main job falls into checks, and a check says what was seen whether it held or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from controller.demo.log_lines import ENGINE_BANNER
from controller.demo.narrator import OPERATOR, REPORTER
from controller.demo.seen import ENGINE, SUPERVISOR, PodSeen, Seen, sighting

AT_ONCE_SEC = 1.0
"""Enough for a loaded machine, and less than any probe would need: only the exit itself tells so early."""
STEPS = ("probe", "prepare", "start", "await")

CLAIMS: Mapping[int, str] = {
    1: "The supervisor knows at once and tells the controller; it freezes because the report was accepted",
    2: "One run in a new epoch: all are probed, all prepare, the barrier holds, all start",
    3: "The instance is ACTIVE again, with new engines that answer",
    4: "Nothing else was touched, and nothing of the old engines is left",
}

Found = tuple[bool, str, str]
"""(held, what was to be seen, what was)."""


@dataclass(frozen=True, slots=True)
class Check:
    claim: int
    held: bool
    what: str
    saw: str


def check_all(seen: Seen) -> tuple[Check, ...]:
    return tuple(Check(claim, *found) for claim, checks in _CHECKS.items() for found in checks(seen))


def _known_at_once(seen: Seen) -> Iterator[Found]:
    pod = seen.pod(seen.victim)
    died = sighting(pod, OPERATOR, rf"engine of epoch {seen.epoch_before} died: (.*)")
    yield (
        died is not None and "SIGKILL" in died.what and died.line.at - seen.killed_at <= AT_ONCE_SEC,
        f"{pod.name} sees the death of its engine at once",
        f"{died.after(seen.killed_at)}, {died.what}" if died is not None else "it logged no death",
    )
    taken = sighting(pod, REPORTER, r"death report taken: recovery (\w+)")
    told_run = taken.line.record.run_id if taken is not None and taken.line.record is not None else None
    yield (
        taken is not None
        and taken.what == "engine_relaunch"
        and seen.run is not None
        and told_run == seen.run.id
        and died is not None
        and died.line.number < taken.line.number,
        "the controller takes its report and names the run",
        f"{taken.after(seen.killed_at)}, {taken.what}, run {(told_run or '-')[:8]}" if taken else "it was not taken",
    )
    frozen = sighting(pod, OPERATOR, r"death report accepted .*: frozen for at most (.*)")
    yield (
        frozen is not None and taken is not None and taken.line.number < frozen.line.number,
        "it freezes after that answer, not before",
        f"{frozen.after(seen.killed_at)}, for at most {frozen.what}" if frozen is not None else "it did not freeze",
    )


def _one_run_behind_a_barrier(seen: Seen) -> Iterator[Found]:
    run = seen.run
    yield (
        len(seen.runs) == 1 and run is not None and (run.epoch, run.outcome, run.phase) == (seen.epoch, "done", 1),
        f"one run, epoch {seen.epoch_before} to {seen.epoch}, done in phase 1",
        "; ".join(f"epoch {run.epoch}, {run.outcome or 'running'}, phase {run.phase}" for run in seen.runs) or "no run",
    )
    steps = run.steps if run is not None else ()
    members = run.supervisors if run is not None else ()
    yield (
        tuple(step.name for step in steps) == STEPS
        and all(step.ended_at and not step.error for step in steps)
        and len(members) == len(seen.pods),
        f"{', '.join(STEPS)}, each with all {len(seen.pods)} supervisors",
        f"{', '.join(step.name + (f' ({step.error})' if step.error else '') for step in steps)}, with {len(members)}",
    )
    yield _barrier(seen)
    for pod in seen.pods:
        yield _banner(seen, pod)


def _barrier(seen: Seen) -> Found:
    what = "no engine starts before every pod has stopped, cleaned and is prepared"
    prepared, started = [], []
    for pod in seen.pods:
        clean = sighting(pod, OPERATOR, r"engine cleaning -> prepared", epoch=seen.epoch)
        begun = sighting(pod, OPERATOR, r"engine prepared -> starting", epoch=seen.epoch)
        if clean is None or begun is None:
            return False, what, f"{pod.name} was never {'prepared' if clean is None else 'started'}"
        prepared.append(clean.line.at - seen.killed_at)
        started.append(begun.line.at - seen.killed_at)
    last, first = max(prepared), min(started)
    return last <= first, what, f"last prepared at {last:+.3f} s, first started at {first:+.3f} s"


def _banner(seen: Seen, pod: PodSeen) -> Found:
    what = f"{pod.name} prints [ENGINE RELAUNCH #1] once, between its two engines"
    banners = [line for line in pod.lines if ENGINE_BANNER.match(line.text)]
    if len(banners) != 1 or "#1]" not in banners[0].text:
        return False, what, f"{len(banners)} banners: {', '.join(line.text[:24] for line in banners) or '-'}"
    here = banners[0].number
    old = [line.number for line in pod.lines if line.text.startswith(f"[{ENGINE} epoch={seen.epoch_before} ")]
    new = [line.number for line in pod.lines if line.text.startswith(f"[{ENGINE} epoch={seen.epoch} ")]
    born = sighting(pod, OPERATOR, r"engine starting -> loading", epoch=seen.epoch)
    if not (old and new and born):
        return False, what, f"{len(old)} lines of the old engine, {len(new)} of the new one"
    first = min(new[0], born.line.number)
    return (
        old[-1] < here < first,
        what,
        f"line {here + 1}, between the old one's last ({old[-1] + 1}) and the new one's first ({first + 1})",
    )


def _active_and_answering(seen: Seen) -> Iterator[Found]:
    instance = seen.instance
    yield (
        instance is not None and instance.status == "active" and instance.epoch == seen.epoch,
        f"the instance is ACTIVE in epoch {seen.epoch}",
        f"{instance.status.upper()} in epoch {instance.epoch}" if instance is not None else "there is no instance",
    )
    for pod in seen.pods:
        old, new = pod.before.get(ENGINE), pod.after.get(ENGINE)
        ready = sighting(pod, OPERATOR, r"engine loading -> done", epoch=seen.epoch)
        yield (
            bool(old and new) and old != new and ready is not None,
            f"{pod.name} has a new engine, and it has loaded",
            f"pid {old} -> {new}, {f'ready at {ready.after(seen.killed_at)}' if ready is not None else 'not ready'}",
        )
    for pod in seen.pods:
        if pod.answer_before is not None:
            yield (
                pod.answer_before.is_good and pod.answer_after is not None and pod.answer_after.is_good,
                f"{pod.name} answers a completion request, before and after",
                f"{pod.answer_before}, then {pod.answer_after}",
            )


def _nothing_else_touched(seen: Seen) -> Iterator[Found]:
    for pod in seen.pods:
        kept = {name: (pid, pod.after.get(name)) for name, pid in pod.before.items() if name != ENGINE}
        yield (
            SUPERVISOR in kept and len(kept) > 1 and all(old and old == new for old, new in kept.values()),
            f"{pod.name}: everything but the engine keeps its pid",
            ", ".join(f"{name} {old if old == new else f'{old} -> {new}'}" for name, (old, new) in kept.items()),
        )
    yield (
        not any(pod.restarts for pod in seen.pods),
        "no container restarted",
        ", ".join(f"{pod.name} {pod.restarts}" for pod in seen.pods),
    )
    yield (
        seen.old_processes_before >= len(seen.pods) and not seen.old_processes_after,
        f"no process of epoch {seen.epoch_before}'s engines is left",
        ", ".join(seen.old_processes_after) or f"{seen.old_processes_before} before the kill, 0 now",
    )
    for pod in seen.pods:
        engine = pod.after.get(ENGINE)
        yield (
            engine is not None and pod.port_holders == (engine,),
            f"{pod.name}: port {pod.port} belongs to the new engine alone",
            f"held by pid {', '.join(map(str, pod.port_holders)) or 'nobody'}",
        )


_CHECKS: Mapping[int, Callable[[Seen], Iterator[Found]]] = {
    1: _known_at_once,
    2: _one_run_behind_a_barrier,
    3: _active_and_answering,
    4: _nothing_else_touched,
}
