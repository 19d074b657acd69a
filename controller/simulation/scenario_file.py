"""SCENARIO.toml -> Scenario, once, with located errors.

podvisor.toml may stand in the same file: it is read and judged by the very parsers that the two programs use. The
environment has no say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from controller.sections import SECTIONS as CONTROLLER_SECTIONS
from controller.settings import FOREIGN as FOREIGN_TO_CONTROLLER
from controller.settings import load as load_controller
from controller.simulation.scenario import (
    SECTIONS,
    DetectionSection,
    FaultsSection,
    FleetSection,
    Scenario,
    SimulationSection,
    TimesSection,
)
from supervisor.engine.model.arbiter import ArbiterSettings
from supervisor.engine.model.freeze import FreezeLimits
from supervisor.engine.model.operation import OperationSettings
from supervisor.settings import FOREIGN as FOREIGN_TO_SUPERVISOR
from supervisor.settings import SECTIONS as SUPERVISOR_SECTIONS
from supervisor.settings import Settings as SupervisorSettings
from supervisor.settings import load_settings as load_supervisor
from supervisor.settings_file import (
    ConfigurationError,
    Foreign,
    Mistake,
    Problem,
    Sections,
    build,
    keys_of,
    read_sections,
)

T = TypeVar("T")

PODVISOR_TOML: Foreign = dict.fromkeys(
    (*CONTROLLER_SECTIONS, *SUPERVISOR_SECTIONS, *FOREIGN_TO_CONTROLLER, *FOREIGN_TO_SUPERVISOR)
)
OURS: Foreign = dict.fromkeys(SECTIONS)


def load(path: Path) -> Scenario:
    """Raises ConfigurationError with all problems of the settings."""
    problems: list[Problem] = []

    def attempt(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ConfigurationError as error:
            known = {(problem.path, problem.line, problem.key) for problem in problems}
            problems.extend(each for each in error.problems if (each.path, each.line, each.key) not in known)
            return None

    sections = {name: keys_of(section) for name, section in SECTIONS.items()}
    values = attempt(lambda: read_sections(path, {}, sections, foreign=PODVISOR_TOML, relations=_relations))
    controller = attempt(lambda: load_controller(path, {}, foreign={**FOREIGN_TO_CONTROLLER, **OURS}))
    supervisor = attempt(lambda: load_supervisor(path, {}, foreign={**FOREIGN_TO_SUPERVISOR, **OURS}))
    if values is None or controller is None or supervisor is None:
        raise ConfigurationError(problems)
    return Scenario(
        name=path.stem,
        simulation=build(SimulationSection, values["simulation"]),
        fleet=build(FleetSection, values["fleet"]),
        times=build(TimesSection, values["times"]),
        detection=build(DetectionSection, values["detection"]),
        faults=build(FaultsSection, values["faults"]),
        policy=controller.policy(),
        arbiter=_arbiter(supervisor),
        operation=_operation(supervisor),
        grace_sec=supervisor.supervisor.grace_period_sec,
    )


def _arbiter(settings: SupervisorSettings) -> ArbiterSettings:
    return ArbiterSettings(settings.supervisor.heartbeat_interval_seconds, settings.supervisor.suicide_threshold)


def _operation(settings: SupervisorSettings) -> OperationSettings:
    fault = settings.fault_tolerance_config
    return OperationSettings(
        enabled=fault.enable_engine_relaunch,
        freeze=FreezeLimits(fault.engine_restart_freeze_sec, fault.engine_restart_freeze_silence_sec),
    )


def _relations(values: Sections) -> Iterator[Mistake]:
    times = build(TimesSection, values["times"])
    if times.backoff_max < times.backoff_first:
        message = f"{times.backoff_max:g} s must not be shorter than backoff_first ({times.backoff_first:g} s)"
        yield Mistake("times", "backoff_max", message)
    if times.load_in_place <= 0:
        yield Mistake("times", "load_in_place", "must be longer than 0: an engine takes time to load")
