"""The `exec` launcher: runs [Service] ExecStart with the placement in its environment; knows no engine."""

from __future__ import annotations

from supervisor.engine.launchers.plan import LaunchPlan, Rank, device_memory_probe, without_http
from supervisor.unit.model import Unit


def plan(unit: Unit, rank: Rank) -> LaunchPlan:
    assert unit.engine is not None, f"{unit.name} is no engine"
    assert unit.service.exec_start is not None, "checked when the file was read"
    serves_http = not rank.headless
    return LaunchPlan(
        argv=unit.service.exec_start.argv,
        serves_http=serves_http,
        probes=unit.probes if serves_http else without_http(unit.probes),
        ports=tuple(dict.fromkeys((rank.port, rank.mgmt_port, *unit.engine.ports_to_free))),
        start_after=unit.engine.start_after,
        critical_processes=unit.engine.critical_processes,
        shared_memory_patterns=unit.engine.shared_memory_patterns,
        lock_patterns=unit.engine.lock_patterns,
        device_memory_probe=device_memory_probe(unit.engine),
    )
