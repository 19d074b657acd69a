"""What the hygiene gate is told of this engine: what it left, what was there before it, what it is about to need."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence

from supervisor.engine.launchers import LaunchPlan
from supervisor.engine.segments import Segments
from supervisor.process.gate import Baseline, DeviceMemoryProbe, GateReport, GateSpec, Port
from supervisor.service.launch import Launch, LaunchError
from supervisor.service.service import Service
from supervisor.unit.model import Command

log = logging.getLogger(__name__)

Gate = Callable[[GateSpec], Awaitable[GateReport]]
"""`supervisor.process.gate.run_gate` in this container."""


class Hygiene:
    """One per endpoint."""

    def __init__(
        self,
        gate: Gate,
        service: Service,
        segments: Segments,
        *,
        any_address: str,
        shared_memory_is_private: bool,
    ) -> None:
        self._gate = gate
        self._service = service
        self._segments = segments
        self._any_address = any_address
        self._shared_memory_is_private = shared_memory_is_private
        self._baseline = Baseline()

    async def pass_gate(self, plan: LaunchPlan, launch: Launch, uid: int) -> None:
        """Raise LaunchError with what is in the way. Cancelled: what was cleaned up stays so. `uid`: the unit's."""
        name = self._service.unit.name
        report = await self._gate(
            GateSpec(
                invocation_ids=frozenset(self._service.invocation_ids),
                ports=tuple(Port(self._any_address, number, f"{name} port") for number in plan.ports),
                shared_memory_patterns=plan.shared_memory_patterns if self._shared_memory_is_private else (),
                shared_memory_recorded=self._segments.recorded,
                lock_patterns=_from_home(plan.lock_patterns, launch.environment),
                socket_patterns=_in_temporary(plan.temporary_sockets, launch.environment),
                device_memory=self._device_memory(plan, launch),
                baseline=self._baseline,
                uids=frozenset({os.geteuid(), uid}),
            ),
        )
        self._baseline = report.baseline
        extra = {"unit": name, "epoch": launch.epoch}
        if report.passed:
            log.info("hygiene gate passed: %s", report, extra=extra)
            return
        log.error("hygiene gate did not pass: %s", report, extra=extra)
        raise LaunchError(f"the hygiene gate did not pass: {report.reason}")

    def _device_memory(self, plan: LaunchPlan, launch: Launch) -> DeviceMemoryProbe | None:
        probe = plan.device_memory_probe
        if probe == "off":
            return None
        engine = self._service.unit.engine
        return DeviceMemoryProbe(
            {**launch.environment, **plan.environment},
            probe.argv if isinstance(probe, Command) else None,
            required=engine is not None and engine.device_memory_probe is not None,
        )


def _from_home(patterns: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    home = environment.get("HOME", "/root")
    return tuple(home + pattern[1:] if pattern.startswith("~/") else pattern for pattern in patterns)


def _in_temporary(names: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    directory = environment.get("TMPDIR") or "/tmp"
    return tuple(f"{directory}/{name}" for name in names)
