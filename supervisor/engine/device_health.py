"""[Engine] DeviceHealthProbe: whether the devices of an engine are there, asked before a spawn and after a death.

A device that is gone makes a failure `hardware`: no further attempts in place. What follows is decided in `model/`,
and for an engine without a controller by its unit's restart rule.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from supervisor.engine.endpoint_engine import EndpointEngine
from supervisor.engine.model.condition import DeviceLost
from supervisor.engine.operator import Operator
from supervisor.process.children import SpawnError
from supervisor.service.launch import HardwareFault, LaunchError
from supervisor.wire import StartCmdMsg

log = logging.getLogger(__name__)

PROBE_SEC = 10.0
"""A driver that does not answer for so long counts as a device that is gone."""


async def check_devices(endpoints: Sequence[EndpointEngine], placement: StartCmdMsg) -> None:
    """Raise HardwareFault, LaunchError. What a probe started is gone when this returns."""
    complaints: list[str] = []

    async def ask(endpoint: EndpointEngine) -> None:
        complaint = await _complaint(endpoint, placement)
        if complaint is not None:
            complaints.append(complaint)

    async with trio.open_nursery() as nursery:
        for endpoint in endpoints:
            nursery.start_soon(ask, endpoint)
    if complaints:
        raise HardwareFault(f"hardware: {'; '.join(sorted(complaints))}")


async def watch_devices(endpoint: EndpointEngine, operator: Operator) -> None:
    """After each death in a gang. Until cancelled."""
    asked = 0
    while True:
        changed = endpoint.service.changed.next()
        invocation, placement = endpoint.service.state.invocation, operator.state.placement
        if endpoint.death() is not None and invocation != asked and placement is not None:
            asked = invocation
            try:
                await check_devices((endpoint,), placement)
            except HardwareFault as fault:
                operator.feed(DeviceLost(endpoint.id, placement.epoch or 0, str(fault)))
            except LaunchError as error:
                log.warning("cannot ask for the devices of %s: %s", endpoint.unit.name, error)
            continue
        await changed.wait()


async def _complaint(endpoint: EndpointEngine, placement: StartCmdMsg) -> str | None:
    launch, engine = await endpoint.beside(placement)
    probe = engine.device_health_probe
    if probe is None:
        return None
    try:
        report = await endpoint.service.run_beside(launch, probe, timeout_sec=PROBE_SEC)
    except (SpawnError, OSError) as error:
        # A slip of the pen in a file must not take every relaunch away.
        log.error("DeviceHealthProbe of %s cannot be run, and says nothing: %s", endpoint.unit.name, error)
        return None
    return None if report.failure is None else f"{endpoint.unit.name}: DeviceHealthProbe {report.words}"
