"""Which strategy answers which fault: one table, read from the top (design 5; S08, S09).

docs/strategies.md shows the same table, and a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.model.fault import ENGINE_DEAD, ENGINE_UNHEALTHY, Fault, FaultLevel
from supervisor.wire import FaultCategory

ENGINE_RELAUNCH = "engine_relaunch"
TOKEN_REINFERENCE = "token_reinference"
UCE_RECOVERY = "uce_recovery"
ELASTIC_SCALING = "elastic_scaling"
SCALE_P2D = "scale_p2d"
RELAUNCH_SWITCH = "enable_engine_relaunch"

SICK = frozenset(FaultLevel) - {FaultLevel.HEALTHY}
GRAVE = frozenset({FaultLevel.L4, FaultLevel.L5, FaultLevel.L6})


@dataclass(frozen=True, slots=True)
class Rule:
    """One row. An empty set stands for any."""

    strategy: str | None
    """None: nothing is done."""
    category: FaultCategory | None = None
    levels: frozenset[FaultLevel] = SICK
    codes: frozenset[int] = frozenset()
    roles: frozenset[str] = frozenset()
    switch: str = ""
    """The setting that must be on, else the row is passed over; "": always."""

    def matches(self, fault: Fault, role: str) -> bool:
        return (
            self.category in (None, fault.category)
            and fault.level in self.levels
            and (not self.codes or fault.code in self.codes)
            and (not self.roles or role in self.roles)
        )


RELAUNCH_OF_THE_DEAD = Rule(ENGINE_RELAUNCH, codes=frozenset({ENGINE_DEAD}), switch=RELAUNCH_SWITCH)
"""Above those of third parties too: a dead engine is seen by heartbeats as well, which ask no table."""

BUILT_IN: tuple[Rule, ...] = (
    Rule(None, FaultCategory.SOFTWARE, codes=frozenset({ENGINE_UNHEALTHY})),
    Rule(
        TOKEN_REINFERENCE,
        FaultCategory.HARDWARE,
        levels=frozenset({FaultLevel.L2}),
        codes=frozenset({0x00F1FEF5, 0x08520003}),
        switch="enable_token_reinference",
    ),
    Rule(
        UCE_RECOVERY,
        FaultCategory.HARDWARE,
        levels=SICK - GRAVE,
        codes=frozenset({0x80E01801}),
        switch="enable_uce_recovery",
    ),
    Rule(
        ELASTIC_SCALING,
        FaultCategory.HARDWARE,
        levels=GRAVE,
        roles=frozenset({"decode"}),
        switch="enable_elastic_scaling",
    ),
    Rule(SCALE_P2D, FaultCategory.HARDWARE, levels=GRAVE, roles=frozenset({"decode"}), switch="enable_scale_p2d"),
)


@dataclass(frozen=True, slots=True)
class Choices:
    """What may be selected in this controller."""

    switches: frozenset[str]
    """Settings that are on."""
    third_party: tuple[Rule, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        return (RELAUNCH_OF_THE_DEAD, *self.third_party, *BUILT_IN)


@dataclass(frozen=True, slots=True)
class Selection:
    strategy: str | None
    reason: str


def select(fault: Fault, role: str, prev_strategy_failed: str, choices: Choices) -> Selection:
    """The strategy for a fault while nothing runs; whether its budget lasts is the run's own question.

    `prev_strategy_failed`: in words, that a strategy which expected to recover without restarting engines has failed
    for this instance; whatever the fault, the next one is the relaunch, under the same switch (S08).
    """
    if fault.level is FaultLevel.HEALTHY:
        return Selection(None, "the engine is healthy")
    if prev_strategy_failed:
        return escalation(prev_strategy_failed, choices)
    switched_off = ""
    for rule in choices.rules:
        if not rule.matches(fault, role):
            continue
        if not rule.switch or rule.switch in choices.switches:
            return Selection(rule.strategy, fault.message if rule.strategy else _nothing(fault))
        switched_off = switched_off or f", because {rule.switch} is off"
    return Selection(None, _nothing(fault) + switched_off)


def escalation(prev_strategy_failed: str, choices: Choices) -> Selection:
    why = f"the strategy before it failed: {prev_strategy_failed}"
    if RELAUNCH_SWITCH not in choices.switches:
        return Selection(None, f"{why}; but {RELAUNCH_SWITCH} is off")
    return Selection(ENGINE_RELAUNCH, why)


def _nothing(fault: Fault) -> str:
    return f"nothing is done about fault {fault.code:#x} of level {fault.level.name}"
