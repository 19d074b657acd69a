"""Everything that a simulation depends on: a fleet, how long things take, what fails how often, and the settings.

The sections are described in the same way as those of podvisor.toml; how the file is read is `scenario_file`'s.
All times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.policy import Policy
from supervisor.engine.model.arbiter import ArbiterSettings
from supervisor.engine.model.operation import OperationSettings
from supervisor.settings_file import boolean, duration, integer, number, setting

HOUR = 3600.0
DAY = 24 * HOUR
YEAR = 366 * DAY
ENDLESS = 1_000_000_000
"""Attempts."""

_often = duration(0, 100 * YEAR)
_long = duration(0, 30 * DAY)


@dataclass(frozen=True, slots=True)
class SimulationSection:
    seed: int = setting(integer(0, 2**53), 1, "of all chance: the same seed gives the same output, byte for byte")
    duration: float = setting(duration(60, YEAR), DAY, "how much life is simulated")


@dataclass(frozen=True, slots=True)
class FleetSection:
    instances: int = setting(integer(1, 10_000), 4, "instances, each of one model replica")
    pods: int = setting(integer(1, 256), 2, "pods of each instance")


@dataclass(frozen=True, slots=True)
class TimesSection:
    load_in_place: float = setting(_long, 60.0, "median from spawn to ready, relaunched in the same container")
    load_in_container: float = setting(_long, 120.0, "the same in a container that restarted: its own files are lost")
    load_in_pod: float = setting(_long, 180.0, "the same in a pod that was created anew, perhaps on a cold node")
    load_spread: float = setting(number(1, 10), 1.2, "of ten loads nine take at most this many times the median")
    engine_stop: float = setting(_long, 2.0, "until an engine that is well has stopped")
    engine_kill: float = setting(_long, 10.0, "until one that hangs is killed, with its whole tree")
    gate: float = setting(_long, 0.1, "the hygiene gate")
    spawn: float = setting(_long, 0.05, "until the engine's process runs")
    store_start: float = setting(_long, 1.0, "until what the engine needs is active in a new container")
    container_start: float = setting(_long, 3.0, "from the kubelet's decision to the supervisor's first statement")
    pod_start: float = setting(_long, 120.0, "from the loss of a pod to the first statement in its successor")
    backoff_first: float = setting(_long, 10.0, "the kubelet's wait before the second restart of a container; doubles")
    backoff_max: float = setting(_long, 300.0, "its longest wait")
    backoff_reset: float = setting(_long, 600.0, "a container that ran for so long is restarted at once again")
    controller_restart: float = setting(_long, 10.0, "how long a controller that died is away")
    operator: float = setting(_long, 1800.0, "from the alarm that an instance is held to an operator's reset; 0: never")
    latency: float = setting(duration(0, 1), 0.001, "of a request from the controller to a supervisor")


@dataclass(frozen=True, slots=True)
class DetectionSection:
    exit_seen: bool = setting(boolean, True, "an engine's exit is an event; else only probes find a dead engine")
    exit: float = setting(duration(0, HOUR), 0.01, "from the exit of an engine to the knowledge of it")
    probe: float = setting(duration(0, DAY), 30.0, "until Liveness or Canary finds an engine sick: period x failures")


@dataclass(frozen=True, slots=True)
class FaultsSection:
    """How often: the mean time between two, 0 for never."""

    engine_crash_every: float = setting(_often, 0.0, "of one pod: its engine's process ends")
    engine_hang_every: float = setting(_often, 0.0, "of one pod: its engine lives and does nothing any more")
    device_fault_every: float = setting(_often, 0.0, "of one pod: its engine ends, and its device is gone with it")
    container_death_every: float = setting(_often, 0.0, "of one pod: the supervisor is killed, and all with it")
    pod_loss_every: float = setting(_often, 0.0, "of one pod: its node is lost; it is created anew elsewhere")
    network_cut_every: float = setting(_often, 0.0, "of one pod: it and the controller cannot reach each other")
    network_cut_lasts: float = setting(_long, 60.0, "how long")
    controller_death_every: float = setting(_often, 0.0, "of the fleet: the controller dies and comes back")
    poisoned_every: float = setting(_often, 0.0, "of one instance: its engines die again and again")
    poisoned_at: float = setting(_often, 0.0, "once, in the first instance; 0: not")
    poisoned_lasts: float = setting(_long, HOUR, "until somebody has mended it")
    poisoned_dies_after: float = setting(_long, 30.0, "from the spawn of an engine to its death: in its load, or later")
    shared_cause_every: float = setting(_often, 0.0, "of the fleet: something that instances share fails")
    shared_cause_at: float = setting(_often, 0.0, "once; 0: not")
    shared_cause_lasts: float = setting(_long, 600.0, "until then what it hit dies again and again")
    shared_cause_fraction: float = setting(number(0, 1), 0.5, "of all instances that it hits at once")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that a simulation depends on."""

    name: str
    simulation: SimulationSection
    fleet: FleetSection
    times: TimesSection
    detection: DetectionSection
    faults: FaultsSection
    policy: Policy
    """The controller's."""
    arbiter: ArbiterSettings
    operation: OperationSettings
    grace_sec: float
    """`grace_period_sec`"""

    def without_relaunch(self) -> Scenario:
        """The same fleet and faults where only containers restart, and as often as it takes: nobody holds them."""
        relaunch = replace(self.policy.relaunch, enable_engine_relaunch=False, engine_relaunch_max_attempts=ENDLESS)
        operation = OperationSettings(
            enabled=False, freeze=self.operation.freeze, alone_after_sec=self.operation.alone_after_sec
        )
        fleet = replace(self.policy.fleet, max_phase2_fraction=1.0)
        return replace(self, policy=replace(self.policy, relaunch=relaunch, fleet=fleet), operation=operation)


SECTIONS: Mapping[str, type] = {
    "simulation": SimulationSection,
    "fleet": FleetSection,
    "times": TimesSection,
    "detection": DetectionSection,
    "faults": FaultsSection,
}
