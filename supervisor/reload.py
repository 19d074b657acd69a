"""Reload: the unit files are read again, and the pod becomes what they say (design 3 and 8, Rollouts).

What is done to which unit is decided in `supervisor.unit.reload`, and carried out by the owner of the units. One
reload at a time: whoever asks during another one is refused, because the files may have been read already; a SIGHUP
cannot be refused, so it is remembered, once, and carried out afterwards. Settings are compared and not applied.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import trio

from supervisor.service.outcomes import StopReport
from supervisor.service.rearrangement import Definition, Rearrangement
from supervisor.service.service import Service
from supervisor.service.units import Units
from supervisor.unit.errors import ConfigurationError, Problem
from supervisor.unit.graph import Graph
from supervisor.unit.model import Unit
from supervisor.unit.reload import Change, Deed, Standing, Verdict, graph_of, judge
from supervisor.unit.states import RunState

log = logging.getLogger(__name__)

READ_SEC = 60.0
"""For all files together; a disk that takes longer hangs, and would hold up every later reload."""
RELOAD = "reload"
"""Who asks for what a reload does: not somebody who wants a unit to stay down."""


class Files(msgspec.Struct, frozen=True):
    """What stands in the files now."""

    units: tuple[Unit, ...]
    settings: tuple[str, ...]
    """Keys of settings that are not as they were at the start of this supervisor."""


class Outcome(msgspec.Struct, frozen=True):
    verdicts: tuple[Verdict, ...]
    settings: tuple[str, ...]
    left: Mapping[str, StopReport] = msgspec.field(default_factory=dict)
    """Stops that are not verified."""


class ReloadRefused(Exception):
    """Another one is being carried out, the pod leaves, or the files cannot be had; nothing was done.

    Or it ended by an error of our own, as its words say then: what it had done before stays.
    """


class Workshop(msgspec.Struct, frozen=True):
    """How declarations become services here."""

    make: Callable[[Unit], Service]
    define: Callable[[Unit], Definition]
    in_gang: Callable[[Unit], bool]


@dataclass(eq=False)
class _Run:
    asked_by: str
    over: trio.Event = field(default_factory=trio.Event)
    outcome: Outcome | None = None
    error: ConfigurationError | ReloadRefused | None = None


class Reloads:
    """One per supervisor."""

    def __init__(self, units: Units, workshop: Workshop, read: Callable[[], Awaitable[Files]]) -> None:
        """`read` raises ConfigurationError with all problems of all files."""
        self._units = units
        self._workshop = workshop
        self._read = read
        self._waiting: Mapping[str, Unit] = {}
        """Declarations that the last reload has held back for a rollout."""
        self._running: _Run | None = None
        self._closed: str | None = None
        """Why nothing is reloaded any more."""
        self._hung_up = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry out what is asked for until cancelled; a reload that is broken off may have stopped units."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            while True:
                await self._hung_up.wait()
                self._hung_up = trio.Event()
                while self._running is not None:
                    await self._running.over.wait()
                if self._closed is None:
                    await self._begin("SIGHUP").over.wait()
                else:
                    log.warning("SIGHUP: %s", self._closed)

    async def reload(self, asked_by: str) -> Outcome:
        """Raise ConfigurationError, ReloadRefused: nothing was changed.

        Returns when what had to stop has stopped and what is to start was asked to. Cancelled: the reload goes on.
        """
        if self._closed is not None:
            raise ReloadRefused(self._closed)
        if self._running is not None:
            raise ReloadRefused(f"a reload asked for by {self._running.asked_by} is being carried out: ask again later")
        run = self._begin(asked_by)
        await run.over.wait()
        if run.error is not None:
            raise run.error
        assert run.outcome is not None, "a reload that is over has an outcome or an error"
        return run.outcome

    async def preview(self) -> Outcome:
        """What a reload would do now. Raise ConfigurationError, ReloadRefused."""
        files = await self._read_in_time()
        verdicts = judge(self._standing(), files.units)
        graph = graph_of(verdicts)  # the files alone have no circle, but what is held back stays as it was
        for verb, circle in (("after", graph.cycle()), ("follows", graph.following_circle())):
            if circle:
                raise ConfigurationError([_goes_round(verb, circle, files.units)])
        return Outcome(verdicts, files.settings)

    def declared(self, name: str) -> Unit:
        """As it is in force after the next rollout."""
        return self._waiting.get(name) or self._units.get(name).unit

    async def roll_out(self, names: Collection[str]) -> None:
        """What was held back for these units, which are stopped, is in force when this returns."""
        waiting = {name: unit for name, unit in self._waiting.items() if name in names}
        graph = Graph.of([waiting.get(service.unit.name) or service.unit for service in self._units])
        redefined = {name: self._workshop.define(unit) for name, unit in waiting.items()}
        await self._units.rearrange(Rearrangement(graph, redefined=redefined), asked_by=RELOAD, reason="rolled out")
        self._waiting = {name: unit for name, unit in self._waiting.items() if name not in names}
        for name in waiting:
            self._units.get(name).changed_keys = ()

    def close(self, reason: str) -> None:
        """The pod leaves: what a reload would start, the end would stop."""
        self._closed = f"this pod leaves ({reason}): nothing is reloaded any more"

    def hang_up(self) -> None:
        """SIGHUP came. Several before the next reload begins are one."""
        self._hung_up.set()

    def _begin(self, asked_by: str) -> _Run:
        assert self._nursery is not None, "it is run before it is asked"
        self._running = run = _Run(asked_by)
        self._nursery.start_soon(self._carry_out, run)
        return run

    async def _carry_out(self, run: _Run) -> None:
        try:
            run.outcome = await self._reload(run.asked_by)
        except ConfigurationError as error:
            run.error = error
            for problem in error.problems:
                log.error("%s", problem)
            log.error("reload asked for by %s: wrong files, nothing was changed", run.asked_by)
        except ReloadRefused as refused:
            run.error = refused
            log.error("reload asked for by %s: %s; nothing was changed", run.asked_by, refused)
        except Exception as error:  # a bug of ours costs this reload; the units go on
            run.error = ReloadRefused(
                f"internal error: {type(error).__name__}: {error}; this is a bug of podvisor, its log has the trace"
            )
            log.exception("reload asked for by %s: %s; what it had done before stays", run.asked_by, run.error)
        finally:
            if run.outcome is None and run.error is None:
                run.error = ReloadRefused("broken off: this supervisor is ending")
            self._running = None
            run.over.set()

    async def _reload(self, asked_by: str) -> Outcome:
        found = await self.preview()
        _tell(found, asked_by)
        reason = f"its declaration has changed (reload asked for by {asked_by})"
        left = await self._units.rearrange(self._rearrangement(found.verdicts), asked_by=RELOAD, reason=reason)
        for name, report in left.items():
            log.error("%s is not gone: %s", name, "; ".join(report.survivors), extra={"unit": name})
        self._mark(found.verdicts)
        return msgspec.structs.replace(found, left=left)

    async def _read_in_time(self) -> Files:
        try:
            with trio.fail_after(READ_SEC):
                return await self._read()
        except trio.TooSlowError:
            raise ReloadRefused(f"the files could not be read within {READ_SEC:g} s: does their disk hang?") from None

    def _standing(self) -> dict[str, Standing]:
        return {
            service.unit.name: Standing(
                service.unit,
                kept_down_by=_person(service.state.kept_down_by),
                gave_up=service.state.state is RunState.FAILED or service.state.skipped,
                gang=self._workshop.in_gang(service.unit),
            )
            for service in self._units
        }

    def _rearrangement(self, verdicts: Sequence[Verdict]) -> Rearrangement:
        by_deed = {deed: frozenset(each.name for each in verdicts if each.deed is deed) for deed in Deed}
        return Rearrangement(
            graph=graph_of(verdicts),
            added=tuple(self._workshop.make(each.becomes) for each in verdicts if _is_new(each) and each.becomes),
            redefined={
                each.name: self._workshop.define(each.becomes)
                for each in verdicts
                if each.change is Change.CHANGED and each.becomes is not None
            },
            stop=by_deed[Deed.STOP] | by_deed[Deed.RESTART],
            removed=by_deed[Deed.STOP],
            start=by_deed[Deed.START] | by_deed[Deed.RESTART],
        )

    def _mark(self, verdicts: Sequence[Verdict]) -> None:
        self._waiting = {each.name: each.waits for each in verdicts if each.waits is not None}
        held = {each.name: each.held for each in verdicts}
        for service in self._units:
            service.changed_keys = held.get(service.unit.name, ())


def _goes_round(verb: str, circle: Sequence[str], units: Sequence[Unit]) -> Problem:
    sources = {unit.name: unit.source for unit in units}
    source = next(sources[name] for name in circle if name in sources)
    words = f" {verb} ".join((*circle, circle[0]))
    return Problem(source, None, "Unit", f"goes round in a circle beside the units that are held back: {words}")


def _person(name: str | None) -> str | None:
    """Our own stops end with a start; one that was broken off must not keep its unit down."""
    return None if name == RELOAD else name


def _is_new(verdict: Verdict) -> bool:
    return verdict.change is Change.ADDED


def _tell(found: Outcome, asked_by: str) -> None:
    log.info("reload asked for by %s", asked_by)
    for verdict in found.verdicts:
        if verdict.change is Change.UNCHANGED:
            continue
        keys = ", ".join(change.key for change in verdict.keys) or "-"
        reason = f": {verdict.reason}" if verdict.reason else ""
        log.info("%s is %s (%s): %s%s", verdict.name, verdict.change, keys, verdict.deed, reason,
                 extra={"unit": verdict.name})  # fmt: skip
    if found.settings:
        log.warning("settings differ from those in force, and are not reloaded: %s", ", ".join(found.settings))
