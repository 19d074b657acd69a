"""What came of a simulation, as values: for the table, the picture and `--json`. Durations are seconds."""

from __future__ import annotations

import msgspec


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    instance: int
    began_at: float
    lasted_sec: float
    cause: str


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """Of single pods."""

    engines_in_place: int = 0
    containers: int = 0
    pods: int = 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    availability: float
    """The part of the measured time in which an instance served, over all instances."""
    measured_sec: float
    """Of all instances, each from its first service on."""
    lost_sec: float
    lost_by_cause: dict[str, float]
    lost_by_phase: dict[str, float]
    outages: int
    longest_outage: Outage | None
    not_serving_at_the_end: int
    restarts: Restarts
    kv_stores_lost: int
    """A pod's store goes with its container."""
    runs: dict[str, int]
    """By how they ended, assemblies included."""
    held: int
    """How often the budget was spent, and an operator needed."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    scenario: str
    seed: int
    duration_sec: float
    instances: int
    pods: int
    faults: dict[str, int]
    """That were drawn; one that met nothing that ran did nothing."""
    podvisor: Outcome
    containers_only: Outcome
    """The same faults where only containers restart."""
