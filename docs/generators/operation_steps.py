"""The engine operation's steps (states.md), found by driving its decisions: `decide` and `advance`.

A supervisor in a gang hears commands and its own effects; one without a controller hears its unit's starts instead.
Commands are made against the state that hears them, so that each is at times the right one, of an older epoch or term,
of another boot, or of another run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from generators.explore import Edge, explore
from supervisor.engine.model import progress
from supervisor.engine.model.commands import Command, decide
from supervisor.engine.model.freeze import FreezeLimits
from supervisor.engine.model.operation import Operation, OperationSettings
from supervisor.engine.model.progress import Event, advance
from supervisor.wire import Action, Endpoint, EngineRestartMsg, Recovery, StartCmdMsg, Step, StopMsg

SOURCES = ("supervisor/engine/model/commands.py", "supervisor/engine/model/progress.py")
BOOT = "boot"
LIMITS = FreezeLimits(duration_sec=720.0, silence_sec=60.0)
SETTINGS = OperationSettings(enabled=True, freeze=LIMITS)
WAITS = (0.0, max(LIMITS.silence_sec, SETTINGS.alone_after_sec) + 1)
"""No event needs more time to mean something else."""
FLAGS = ("aborting", "start_when_prepared")


class Moment(msgspec.Struct, frozen=True):
    operation: Operation
    now: float


def in_a_gang() -> frozenset[Edge]:
    return _explored(commanded=True)


def alone() -> frozenset[Edge]:
    return _explored(commanded=False)


def _explored(*, commanded: bool) -> frozenset[Edge]:
    def moves(at: Moment) -> Iterator[tuple[Moment, Iterable[Edge]]]:
        before = at.operation
        for label, event in _events(before, commanded=commanded):
            for seconds in WAITS:
                now = at.now + seconds
                after, _ = advance(before, event, SETTINGS, now)
                yield Moment(after, now), _edge(before, after, label + _used_up(event, before, after))
        for label, command in _commands(before) if commanded else ():
            after, _, _ = decide(before, command, SETTINGS, at.now)
            yield Moment(after, at.now), _edge(before, after, label)

    booted = Moment(Operation(boot_id=BOOT, booted_at=0.0, epoch=1, term=1), now=0.0)
    edges = explore([booted], moves, _essence)
    assert not commanded or {edge.source for edge in edges} == set(Step), "a step that is never left, or never reached"
    return edges


def _edge(before: Operation, after: Operation, label: str) -> Iterator[Edge]:
    """To another step, or to the same step of another operation."""
    if (before.step, before.serial) != (after.step, after.serial):
        yield Edge(before.step, after.step, label)


def _used_up(event: Event, before: Operation, after: Operation) -> str:
    """`clean` leads where an earlier command has said."""
    if not isinstance(event, progress.Clean):
        return ""
    flags = (flag for flag in FLAGS if getattr(before, flag) and not getattr(after, flag))
    return "".join(f" ({flag.replace('_', ' ')})" for flag in flags)


def _essence(at: Moment) -> Hashable:
    operation = at.operation
    return (
        operation.step,
        operation.ever_started,
        operation.dead,
        operation.start_when_prepared,
        operation.holding,
        operation.aborting,
        operation.run_id is None,
        operation.run_id in operation.aborted_runs,
        operation.freeze is None or operation.freeze.is_over(at.now),
        operation.held_by is None,
        operation.leaving is None,
        operation.placement is not None and operation.placement.nnodes,
    )


def _events(operation: Operation, *, commanded: bool) -> Iterator[tuple[str, Event]]:
    for serial in (operation.serial, operation.serial - 1):
        yield "stopped", progress.Stopped(serial)
        yield "clean", progress.Clean(serial)
        yield "spawned", progress.Spawned(serial)
        yield "loaded", progress.Loaded(serial)
        yield "broke", progress.Broke(serial, "why")
    yield "engine died", progress.EngineDied("why")
    yield "held by an operator", progress.Held("an operator")
    yield "released", progress.Released()
    yield "leaving", progress.Leaving("why")
    yield "tick", progress.Tick()
    if not commanded:
        epoch = operation.epoch + 1
        yield "started by its unit", progress.StartedLocally(_placement(epoch, nnodes=1), epoch)
        return
    yield "abandoned by the controller", progress.Abandoned("why")
    for run_id in (operation.run_id, "another run"):
        yield "controller heard", progress.ControllerHeard(run_id, operation.term)
        for epoch in (operation.epoch, operation.epoch - 1):
            for recovery in Recovery:
                yield "report accepted", progress.ReportAccepted(epoch, recovery, run_id)
    yield "report undelivered, alone in the instance", progress.ReportUndelivered(operation.epoch)


def _commands(operation: Operation) -> Iterator[tuple[str, Command]]:
    epoch, term = operation.epoch, operation.term
    for action in Action:
        for run_id, numbered in ((operation.run_id, epoch), ("another run", epoch + 1), (None, None)):
            told = EngineRestartMsg(action=action, run_id=run_id, epoch=numbered, term=term)
            yield action, told
            for nnodes in (1, 2):
                yield action, replace(told, start=_placement(numbered, nnodes))
        newer = EngineRestartMsg(action=action, run_id="another run", epoch=epoch + 1, term=term)
        yield action, replace(newer, epoch=epoch - 1)
        yield action, replace(newer, term=term - 1)
        yield action, replace(newer, boot_id="another boot")
    for numbered in (None, epoch, epoch + 1):
        yield "start with a placement", _placement(numbered, nnodes=2, term=term)
    yield "stop", StopMsg(term=term, boot_id=BOOT)


def _placement(epoch: int | None, nnodes: int, term: int = 0) -> StartCmdMsg:
    endpoint = Endpoint(id=0, ip="10.0.0.1", business_port="10000", mgmt_port="10000")
    return StartCmdMsg(
        job_name="job",
        role="union",
        instance_id=1,
        endpoints=(endpoint,),
        master_dp_ip="10.0.0.1",
        epoch=epoch,
        nnodes=nnodes,
        term=term,
    )
