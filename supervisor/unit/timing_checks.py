"""Numbers of one unit that cannot go together, or of which one has no effect. Every rule yields a `Remark`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from supervisor.unit.model import LogLineCheck, Probe, Service, ServiceType, Unit
from supervisor.unit.quantities import format_duration
from supervisor.unit.restart import backoff
from supervisor.unit.toml_lines import KeyPath

SLOW_ANSWERS = 10
"""So many periods of Liveness an answer may take before PeriodSec says nothing any more."""


class Remark(msgspec.Struct, frozen=True):
    path: KeyPath
    message: str
    wrong: bool = False
    """The unit can never work; else it is only not what somebody may have meant."""


def timing_remarks(unit: Unit, data: Mapping[str, object]) -> Iterator[Remark]:
    """`data` tells what was written from what is a default."""
    written = data.get("Service")
    keys = written if isinstance(written, dict) else {}
    probes, start = unit.probes, unit.service.start
    for section, probe in (("Startup", probes.startup), ("Readiness", probes.readiness)):
        if probe is not None:
            yield from _never_passes(section, probe, start.timeout_sec)
    if probes.liveness is not None:
        yield from _slow_answers(probes.liveness)
    yield from _start(unit, keys)
    yield from _watchdog(unit.service, keys)
    yield from _start_limit(unit.service)
    yield from _rate_limit(unit.service)


def _never_passes(section: str, probe: Probe, start_sec: float) -> Iterator[Remark]:
    line = isinstance(probe.check, LogLineCheck)
    further = 0.0 if line else (probe.success_threshold - 1) * probe.period_sec
    needed, limit = probe.initial_delay_sec + further, f"TimeoutStartSec ({format_duration(start_sec)})"
    if needed >= start_sec:
        key = "InitialDelaySec" if probe.initial_delay_sec >= further else "SuccessThreshold"
        message = f"cannot pass before {format_duration(needed)}, and the start is given up after {limit}"
        yield Remark((section, key), f"{message}: make that longer", wrong=True)
    elif not line and probe.timeout_sec >= start_sec:
        yield Remark((section, "TimeoutSec"), f"one answer that never comes uses up the whole start, {limit}")


def _slow_answers(probe: Probe) -> Iterator[Remark]:
    if probe.timeout_sec <= SLOW_ANSWERS * probe.period_sec:
        return
    noticed = format_duration(probe.timeout_sec * probe.failure_threshold)
    beyond = f"is far beyond PeriodSec ({format_duration(probe.period_sec)}), and the next try waits for the answer"
    yield Remark(("Liveness", "TimeoutSec"), f"{beyond}: what hangs is noticed after {noticed}")


def _start(unit: Unit, keys: Mapping[str, object]) -> Iterator[Remark]:
    start = unit.service.start
    stall, limit = start.stall_sec, format_duration(start.timeout_sec)
    if "StartStallSec" in keys and stall is not None and stall >= start.timeout_sec:
        message = f"has no effect: TimeoutStartSec ({limit}) gives up the start before"
        yield Remark(("Service", "StartStallSec"), message)
    if "StartCpuOnlySec" in keys and stall is None:
        yield Remark(("Service", "StartCpuOnlySec"), "has no effect without StartStallSec")


def _watchdog(service: Service, keys: Mapping[str, object]) -> Iterator[Remark]:
    if service.watchdog_sec is None:
        for name in ("WatchdogSignal", "TimeoutAbortSec"):
            if name in keys:
                yield Remark(("Service", name), "has no effect without WatchdogSec")
    elif service.type in (ServiceType.ONESHOT, ServiceType.EXTERNAL):
        message = f'has no effect: a unit of Type "{service.type}" has no process while it is active'
        yield Remark(("Service", "WatchdogSec"), message)


def _start_limit(service: Service) -> Iterator[Remark]:
    """The known trap of the two keys: back-offs that are together longer than the interval."""
    restart = service.restart
    interval = restart.limit_interval_sec
    if not interval or restart.limit_burst <= 1:
        return
    taken = sum(backoff(restart, number, 0.0) for number in range(restart.limit_burst - 1))
    if taken < interval:
        return
    message = (
        f"never reached: {restart.limit_burst} starts take {format_duration(round(taken, 1))} with their back-offs, "
        f"longer than StartLimitIntervalSec ({format_duration(interval)})"
    )
    yield Remark(("Service", "StartLimitIntervalSec"), message)


def _rate_limit(service: Service) -> Iterator[Remark]:
    logging = service.logging
    interval, burst = logging.rate_limit_interval_sec, logging.rate_limit_burst
    if bool(interval) is not bool(burst):
        name, other = ("Interval", "Burst") if interval else ("Burst", "Interval")
        keys = {"Interval": "LogRateLimitIntervalSec", "Burst": "LogRateLimitBurst"}
        yield Remark(("Service", keys[name]), f"has no effect without {keys[other]}")
