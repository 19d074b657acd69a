"""What the kubelet's probes are told (design 8). A plain function of what is seen; nothing is asked here."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from supervisor.wire import EndpointStatus


class Readiness(msgspec.Struct, frozen=True):
    """Why a probe is refused, in words; empty: it is not."""

    not_started: str
    not_ready: str


def readiness(
    *,
    waiting: Sequence[str],
    registered: bool | None,
    endpoint: EndpointStatus | None,
    ending: str,
    unready: Sequence[str],
    instance: str = "",
) -> Readiness:
    """Started: all units are active, or the controller knows this pod, whose engine may wait for its gang for hours.

    Ready: the engine is normal, and so are those of the instance's other pods; nobody leaves. Without an engine: all
    units are active. `waiting` are the units that are not active; `registered` is None without a controller,
    `endpoint` without an engine; `ending` says why the supervisor ends, if it does, and `instance` why the instance
    does not serve; `unready` are those that are up and whose Readiness fails now.
    """
    not_active = f"not active: {', '.join(waiting)}" if waiting else ""
    not_started = "" if registered else not_active
    if not_started and registered is not None:
        not_started += "; not registered with the controller"
    if ending:
        return Readiness(not_started, f"ending: {ending}")
    if endpoint is None and waiting:
        return Readiness(not_started, not_active)
    if endpoint not in (None, EndpointStatus.NORMAL):
        return Readiness(not_started, f"endpoint is {endpoint}")
    if unready:
        return Readiness(not_started, f"Readiness fails: {', '.join(unready)}")
    return Readiness(not_started, instance)
