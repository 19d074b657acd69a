"""One life of a modelled supervisor: every decision is the real one's, every effect takes the scenario's time.

What `supervisor.engine.operator`, `heartbeat`, `fault_reporter` and `arbiter` do as tasks around
`supervisor.engine.model` is done here as appointments; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, assert_never

from controller.model.member import seen_in_status
from controller.model.relaunch.exchange import Probe, Request
from controller.simulation.arbiter import Ticks
from controller.simulation.engine import Engine
from controller.simulation.pulse import Pulse
from controller.simulation.reporter import Reporter
from controller.simulation.surroundings import Life, Link, Surroundings
from controller.simulation.told import RELAUNCH, Told, What
from controller.simulation.view import View
from controller.simulation.waiting_commands import Reply, WaitingCommands, refused
from supervisor import wire
from supervisor.engine.model import commands, progress
from supervisor.engine.model.condition import DeviceLost
from supervisor.engine.model.fencing import Refused as CommandRefused
from supervisor.engine.model.operation import (
    Action,
    AnnounceRelaunch,
    EndSupervisor,
    HoldEngines,
    Operation,
    PrepareEngines,
    RecoverEngine,
    Report,
    StartEngines,
)


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a container leaves in its pod's state directory."""

    epoch: int = 0
    term: int = 0


class Host(Protocol):
    """The pod in which a supervisor lives."""

    instance: int
    rank: int

    def identity(self, boot_id: str, remembered: Remembered) -> wire.SupervisorIdentity: ...

    def next_pid(self) -> int: ...

    def load_sec(self) -> float:
        """Of an engine that is spawned now."""

    def dies_after(self, engine: Engine) -> float | None:
        """From its spawn, if it is poisoned."""

    def is_poisoned(self) -> bool: ...

    def ended(self, reason: str) -> None:
        """The supervisor has stopped everything and is gone."""


class Supervisor:
    def __init__(
        self, surroundings: Surroundings, host: Host, link: Link, boot_id: str, remembered: Remembered
    ) -> None:
        self._around = surroundings
        self._host = host
        self._settings = surroundings.scenario.operation
        self._remembered = remembered
        self.boot_id = boot_id
        now = surroundings.now
        self.operation = Operation(boot_id, now, since=now, epoch=remembered.epoch, term=remembered.term)
        self.engine: Engine | None = None
        self.life = Life(surroundings.agenda)
        self._dependencies_active = False
        self.ends = False
        self._freeze_ends_at: float | None = None
        self._waiting = WaitingCommands(self.life, lambda: self.operation, self._settings.answer_sec)
        self._changing = self._changed_again = False
        arbiter = surroundings.scenario.arbiter
        self._ticks = Ticks(self.life, arbiter, now, lambda: self.view.situation(), self.end)
        self._reporter = Reporter(
            self.life, link, lambda: self.view.observation(), lambda due: self.view.fault_message(due), self.feed
        )
        chance = surroundings.chance("introduction", host.instance, host.rank, boot_id)
        self.pulse = Pulse(self.life, link, self, arbiter.interval_sec, chance)
        self._link = link

    # --- its life ------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._around.now

    def boot(self) -> None:
        self.life.after(self._around.scenario.times.store_start, self._dependencies_have_come)
        self.pulse.introduce()

    def die(self) -> None:
        """With everything in its container, at once."""
        self.pulse.link_lost()
        self.life.lives = False
        self.engine = None

    def end(self, reason: str) -> None:
        """Stop everything, then exit so that the container restarts."""
        if self.ends:
            return
        self.ends = True
        seconds = self._stop_sec()
        self._stop_engine()
        self.feed(progress.Leaving(reason))
        self.life.after(seconds, lambda: self._host.ended(reason))

    def remember(self) -> Remembered:
        known = self._remembered
        return Remembered(max(known.epoch, self.operation.epoch), max(known.term, self.operation.term))

    @property
    def serves(self) -> bool:
        return self.engine is not None and self.engine.serves

    # --- what happens to its engine ------------------------------------------------------------------------------

    def engine_ends(self, reason: str, *, device: bool = False) -> bool:
        """False if there is none that could."""
        engine = self.engine
        if engine is None or not engine.lives or engine.stops:
            return False
        engine.lives = False
        self._tell(What.ENGINE_GONE, engine.epoch, reason)
        detection = self._around.scenario.detection
        if detection.exit_seen or device or not engine.ready:
            self.life.after(detection.exit, lambda: self._death_is_known(engine, reason, device))
        else:
            self.life.after(detection.probe, lambda: self._is_found_sick(engine, reason))
        return True

    def engine_hangs(self) -> bool:
        engine = self.engine
        if engine is None or not engine.serves:
            return False
        engine.hangs = True
        self.life.after(self._around.scenario.detection.probe, lambda: self._is_found_sick(engine, "it hangs"))
        return True

    # --- from the controller -------------------------------------------------------------------------------------

    def serve(self, request: Request, reply: Reply) -> None:
        if isinstance(request, Probe):
            self.feed(progress.ControllerHeard(request.run_id, term=0))
            reply(seen_in_status(self.view.status(), self.now))
            return
        self._command(request, reply)

    def obey(self, order: wire.Order) -> None:
        """The two orders of `supervisor.engine.heartbeat`; what comes of them is told to nobody."""
        if order.order == wire.OrderKind.ABORT:
            action = wire.Action.ABORT
            abort = wire.EngineRestartMsg(action=action, term=order.term, run_id=order.run_id, boot_id=order.boot_id)
            self._command(abort, lambda _: None)
        elif order.order == wire.OrderKind.LEAVE:
            leave = wire.StopMsg(term=order.term, run_id=order.run_id, boot_id=order.boot_id, reason=order.reason)
            self._command(leave, lambda _: None)

    def heard(self, run_id: str | None, term: int) -> None:
        if run_id is not None or term > self.operation.term:
            self.feed(progress.ControllerHeard(run_id, term))

    def abandon(self, reason: str, then: Callable[[], None]) -> None:
        self.feed(progress.Abandoned(reason))
        seconds = self._stop_sec()
        self._stop_engine()

        def gone() -> None:
            self.engine = None
            then()

        self.life.after(seconds, gone)

    def feed(self, event: progress.Event) -> None:
        state, actions = progress.advance(self.operation, event, self._settings, self.now)
        self._become(state, actions)

    # --- what it says --------------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        grace_sec = self._around.scenario.grace_sec
        ready, rank = self._dependencies_active, self._host.rank
        return View(self.operation, self.engine, self._identity(), rank, ready, grace_sec, self.now)

    def heartbeat(self, sequence: int) -> wire.HeartbeatMsg:
        return self.view.heartbeat(sequence)

    def registration(self) -> wire.RegisterMsg | wire.ReregisterMsg:
        return self.view.registration()

    # --- inside --------------------------------------------------------------------------------------------------

    def _become(self, state: Operation, actions: tuple[Action, ...]) -> None:
        if state == self.operation and not actions:
            return
        before, self.operation = self.operation, state
        if state.step is not before.step:
            self._tell(What.STEP, state.epoch, state.step, state.run_id)
        if (state.freeze is None) is not (before.freeze is None):
            self._tell(What.FROZEN if state.freeze is not None else What.UNFROZEN, state.epoch)
        for action in actions:
            self._carry_out(action)
        self._changed()

    def _carry_out(self, action: Action) -> None:
        match action:
            case PrepareEngines(serial):
                self._stop_then(lambda: self._clean(serial), serial)
            case HoldEngines(serial):
                self._stop_then(lambda: None, serial)
            case StartEngines(serial):
                self.life.after(self._around.scenario.times.spawn, lambda: self._spawn(serial))
            case EndSupervisor(reason):
                self.end(reason)
            case RecoverEngine() | AnnounceRelaunch() | Report():
                """No scenario asks for the first, nor starts engines without a controller; the last is for people."""
            case _:
                assert_never(action)

    def _changed(self) -> None:
        """Whoever follows the operation looks, once more for as long as looking has changed it."""
        self._changed_again = True
        if self._changing:
            return
        self._changing = True
        while self._changed_again and self.life.lives:
            self._changed_again = False
            self._waiting.look()
            self._watch_freeze()
            self._ticks.look(self.now)
            self._reporter.look()
            self.pulse.look()
        self._changing = False

    def _dependencies_have_come(self) -> None:
        self._dependencies_active = True
        self._changed()

    def _stop_sec(self) -> float:
        engine, times = self.engine, self._around.scenario.times
        if engine is None or not engine.lives:
            return 0.0
        return times.engine_kill if engine.hangs else times.engine_stop

    def _stop_engine(self) -> None:
        if self.engine is not None:
            self.engine.stops = True

    def _stop_then(self, follow: Callable[[], None], serial: int) -> None:
        def stopped() -> None:
            if serial != self.operation.serial:
                return  # a newer operation stops it itself
            self.engine = None
            self.feed(progress.Stopped(serial))
            follow()

        seconds = self._stop_sec()
        self._stop_engine()
        self.life.after(seconds, stopped)

    def _clean(self, serial: int) -> None:
        self.life.after(self._around.scenario.times.gate, lambda: self.feed(progress.Clean(serial)))

    def _spawn(self, serial: int) -> None:
        if serial != self.operation.serial or self.ends:
            return
        engine = self.engine = Engine(self._host.next_pid(), self.operation.epoch, self.now)
        words = RELAUNCH if self.operation.relaunch_count else ""
        self._tell(What.SPAWNED, engine.epoch, words, self.operation.run_id)
        self.life.after(self._host.load_sec(), lambda: self._loaded(engine, serial))
        dies_after = self._host.dies_after(engine)
        if dies_after is not None:
            self.life.after(dies_after, lambda: self._poison_works(engine))
        self.feed(progress.Spawned(serial))

    def _poison_works(self, engine: Engine) -> None:
        if engine is self.engine and self._host.is_poisoned():
            self.engine_ends("poisoned")

    def _loaded(self, engine: Engine, serial: int) -> None:
        if engine is self.engine and engine.lives and not engine.stops:
            engine.ready = True
            self.feed(progress.Loaded(serial))

    def _death_is_known(self, engine: Engine, reason: str, device: bool) -> None:
        if engine is not self.engine or engine.stops:
            return
        endpoint, epoch = self.view.endpoint_id, self.operation.epoch
        self.feed(progress.EngineDied(reason, endpoint))
        if device:
            self.feed(DeviceLost(endpoint, epoch, reason))

    def _is_found_sick(self, engine: Engine, reason: str) -> None:
        if engine is self.engine and not engine.stops:
            engine.unhealthy = reason
            grace_ends = engine.spawned_at + self._around.scenario.grace_sec
            self.life.at(grace_ends, self._changed)  # from then on it counts
            self._changed()

    def _watch_freeze(self) -> None:
        freeze = self.operation.freeze
        self._freeze_ends_at, before = (None if freeze is None else freeze.ends_at()), self._freeze_ends_at
        if self._freeze_ends_at is not None and self._freeze_ends_at != before:
            ends_at = self._freeze_ends_at
            self.life.at(ends_at, lambda: self._freeze_may_end(ends_at))

    def _freeze_may_end(self, ends_at: float) -> None:
        """Unless an answer to a heartbeat that nobody has sent here would have gone on with it."""
        if self._freeze_ends_at != ends_at:
            return
        taken_at, controller = self.pulse.last_taken(self.now), self._link()
        if controller is not None and self.pulse.registered:
            run_id = controller.run_of(self._identity().job_name, taken_at)
            heard = self.operation.heard(run_id, taken_at) if run_id is not None else self.operation
            self._become(heard, ())
        self.feed(progress.Tick())

    def _command(self, command: commands.Command, reply: Reply) -> None:
        state, actions, decision = commands.decide(self.operation, command, self._settings, self.now)
        self._become(state, actions)
        if isinstance(decision, CommandRefused):
            reply(refused(self.operation, decision.code, decision.message))
        else:
            self._waiting.add(decision, reply)

    def _identity(self) -> wire.SupervisorIdentity:
        return self._host.identity(self.boot_id, self.remember())

    def _tell(self, what: What, epoch: int, words: str = "", of: str | None = None) -> None:
        self._around.tell(Told(self.now, what, self._host.instance, self._host.rank, epoch, words, of))
