"""One instance under any order of faults, ends and withdrawals: the registry's promises to reporters and to faults."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.events import EventLog
from controller.model import devices
from controller.model.fault import Fault, FaultIdentity, FaultLevel
from controller.model.instance import activate
from controller.model.outcome import Failed, Outcome, Recovered, Withdrawn
from controller.model.relaunch.exchange import CancelKind
from controller.model.selection import ENGINE_RELAUNCH, select
from controller.model.settings import RelaunchSettings, StrategySettings
from controller.model.wanted import Wanted, wanted_for_a_device
from controller.policy import Policy
from controller.reception import Reception
from controller.recovery import Recovery
from controller.registry import Registry
from controller.store.base import Loaded
from controller.store.memory import MemoryStore
from controller.terms import Terms
from supervisor.wire import (
    EndpointStatus,
    EngineHealth,
    FaultAnswer,
    HardwareFaultMsg,
    OrderKind,
    SoftwareFaultMsg,
)
from supervisor.wire import Recovery as Told
from tests.unit.controller_gang import FAULT, registration, seen, serving

NOW = 1.0
CODES = (0x00F1FEF5, 0x80E01801, 0x80DE1801)
SWITCHES = frozenset({"enable_token_reinference", "enable_uce_recovery", "enable_elastic_scaling", "enable_scale_p2d"})


@dataclass
class Bench:
    """The registry with one instance, and a strategy centre in which every step is the test's."""

    switch: bool = True
    working: list[Recovery] = field(default_factory=list)
    owed: dict[FaultIdentity, Fault] = field(default_factory=dict)
    """Faults of devices for which a strategy was to begin, and none has."""

    def __post_init__(self) -> None:
        policy = Policy(RelaunchSettings(enable_engine_relaunch=self.switch), strategies=StrategySettings(SWITCHES))
        self.registry = Registry(policy, EventLog(), Terms(MemoryStore(), 1), Loaded(term=1, next_instance_id=1))
        self.reception = Reception(self.registry)
        for index in (0, 1):
            self.reception.register(registration(index, role="decode"), 0.0)
        (self.entry,) = self.registry.entries()
        self.entry.instance = activate(serving(2, epoch=4, role="decode"), "normal", 0.0)

    def begin(self) -> None:
        """As the centre: whatever is opened is begun at once."""
        while self.registry.opened:
            recovery = self.registry.opened.popleft()
            self.working.append(recovery)
            self.owed = {told: fault for told, fault in self.owed.items() if fault not in recovery.began_with}

    def device(self, index: int, level: str, code: int) -> FaultAnswer:
        ip = self.entry.instance.members[index].ip
        message = HardwareFaultMsg(fault_code=code, fault_level=level, pod_ip=ip)
        answer, _ = self.reception.report_hardware_fault(message, lambda _: True, NOW)
        self._note()
        return answer

    def _note(self) -> None:
        """What is present now, waits, and has a strategy."""
        begun = self.entry.recovery.began_with if self.entry.recovery else ()
        present = [fault for fault in devices.unanswered(self.entry.instance) if fault not in begun]
        still = {told: fault for told, fault in self.owed.items() if self.is_present(fault)}
        self.owed = still | {fault.identity: fault for fault in present if self.chosen(fault)}

    def is_present(self, fault: Fault) -> bool:
        """Whether anybody says that it was answered or not."""
        return any((it.identity, it.level) == (fault.identity, fault.level) for it in self.entry.instance.faults)

    def chosen(self, fault: Fault) -> str | None:
        instance = self.entry.instance
        choices = self.registry.policy.choices
        return select(fault, instance.spec.role, instance.prev_strategy_failed, choices).strategy

    def engine(self, index: int, health: EngineHealth) -> FaultAnswer:
        member = self.entry.instance.members[index]
        status = EndpointStatus.ABNORMAL if health is EngineHealth.DEAD else EndpointStatus.NORMAL
        observation = seen(self.entry.instance, member.key, NOW, status)
        self.registry.observe(self.entry, member.key, observation, NOW)
        message = SoftwareFaultMsg(
            exception_type="exited",
            exception_message="killed",
            engine_id=index,
            engine_status=health,
            pod_ip=member.ip,
            job_name="llama",
            epoch=self.entry.instance.epoch,
            boot_id=member.boot_id,
            pid=4711,
        )
        return self.reception.report_software_fault(message, NOW)

    def end(self, outcome: Outcome, *, just_before: bool = False) -> None:
        """What works comes to its end, or to that of its clean-up if it was not `just_before` it was withdrawn."""
        if not self.working:
            return
        recovery = self.working.pop()
        is_withdrawn = recovery.withdrawn is not None and not just_before
        ended = Withdrawn(str(recovery.withdrawn)) if is_withdrawn else outcome
        if recovery.strategy == ENGINE_RELAUNCH and isinstance(ended, Recovered):
            for member in self.entry.instance.members:
                self.registry.observe(self.entry, member.key, seen(self.entry.instance, member.key, NOW), NOW)
        view = recovery.view(self.entry.instance, NOW, str, ended)
        self.registry.close(recovery, ended, view, NOW)

    def abort(self) -> None:
        if self.entry.recovery:
            self.entry.recovery.cancel(CancelKind.ABORT, "an operator")


DEVICE = st.tuples(
    st.just("device"), st.integers(0, 1), st.sampled_from([*FaultLevel.__members__]), st.sampled_from(CODES)
)
ENGINE = st.tuples(st.just("engine"), st.integers(0, 1), st.sampled_from(EngineHealth))
END = st.tuples(st.just("end"), st.sampled_from([Recovered("done"), Failed("no")]), st.booleans())
OTHER = st.sampled_from([("abort",), ("open",)])


def play(bench: Bench, move: tuple[object, ...]) -> FaultAnswer | None:
    match move:
        case ("device", int(index), str(level), int(code)):
            return bench.device(index, level, code)
        case ("engine", int(index), EngineHealth() as health):
            return bench.engine(index, health)
        case ("end", (Recovered() | Failed()) as outcome, bool(just_before)):
            bench.end(outcome, just_before=just_before)
        case ("abort",):
            bench.abort()
        case ("open",):
            bench.registry.open(bench.entry, Wanted(ENGINE_RELAUNCH, FAULT), NOW)
    return None


def check(bench: Bench, answer: FaultAnswer | None) -> None:
    open_now = bench.entry.recovery
    assert bench.working == ([open_now] if open_now else []), "at most one strategy, and the registry knows it"
    if answer is not None and answer.recovery is not Told.NONE:
        assert open_now is not None, f"told {answer.recovery} without anything that works"
        assert (answer.run_id, answer.strategy) == (open_now.run_id, open_now.strategy)
    graver = wanted_for_a_device(bench.entry.instance, bench.registry.policy.choices)
    if graver is None:
        return
    assert open_now is not None, f"{graver.fault} waits for nobody"
    assert graver.level <= open_now.level or open_now.withdrawn, "what is graver waits without anybody giving way"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(DEVICE, DEVICE, ENGINE, END, OTHER), max_size=25), st.booleans())
def test_one_strategy_at_a_time_nobody_waits_for_nothing_and_nothing_grave_is_lost(
    moves: list[tuple[object, ...]], switch: bool
) -> None:
    bench = Bench(switch)
    for move in moves:
        answer = play(bench, move)
        bench.begin()
        check(bench, answer)
    drain(bench)


def drain(bench: Bench) -> None:
    """Everything that still works succeeds: soon nothing is left to be done, and whoever waited is let go."""
    waiting = set(bench.entry.waiting)
    for _ in range(10):
        if not bench.working:
            break
        last = bench.working[0]
        bench.end(Recovered("done"))
        bench.begin()
        check(bench, None)
    assert not bench.working, "one strategy after the other, without end"
    assert wanted_for_a_device(bench.entry.instance, bench.registry.policy.choices) is None
    lost = [fault for fault in bench.owed.values() if bench.is_present(fault) and bench.chosen(fault)]
    assert not lost, "no recovery has begun with these"
    if waiting and last.strategy != ENGINE_RELAUNCH:
        for key in waiting:
            assert [order.order for order in bench.entry.orders(key, NOW)] == [OrderKind.ABORT]


@given(st.sampled_from([*FaultLevel.__members__]), st.sampled_from(CODES), st.sampled_from([*FaultLevel.__members__]))
def test_a_lesser_fault_never_withdraws_and_a_graver_one_with_a_strategy_always_does(
    first: str, code: int, second: str
) -> None:
    bench = Bench()
    bench.device(0, first, code)
    bench.begin()
    if not bench.working:
        return
    recovery = bench.working[0]
    bench.device(1, second, 0x80E01801)
    other = [fault for fault in bench.entry.instance.faults if fault.identity.member.node == "#1"]
    chosen = select(other[0], "decode", "", bench.registry.policy.choices).strategy if other else None
    is_graver = FaultLevel[second] > FaultLevel[first]
    assert (recovery.withdrawn is not None) == (is_graver and chosen is not None)
