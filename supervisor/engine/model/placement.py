"""Where this pod's engine stands in its gang: the placement, whether it fits this pod, and its variables.

The placement is the controller's StartCmdMsg; a standalone engine has one made from the settings, so that an
engine is launched in one way only.
"""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from supervisor.unit import endpoints
from supervisor.unit.model import Engine
from supervisor.unit.values import MAX_PORT
from supervisor.wire import Endpoint, StartCmdMsg

LOOPBACK = "127.0.0.1"


def standalone(engine: Engine, *, job_name: str, role: str, pod_ip: str, epoch: int) -> StartCmdMsg:
    """One pod, no controller (design 2, RestartWith = "local"): the epoch counts the starts."""
    return StartCmdMsg(
        job_name=job_name,
        role=role,
        instance_id=0,
        endpoints=tuple(_endpoint(engine, number, pod_ip) for number in range(engine.endpoints)),
        master_dp_ip=LOOPBACK,
        epoch=epoch,
        dp_size=engine.endpoints,
        node_addrs=(pod_ip,),
    )


class Place(msgspec.Struct, frozen=True):
    """Where this pod stands in its gang by its settings, for when no controller says so."""

    node_rank: int
    node_addrs: tuple[str, ...]
    """One for each node."""
    master_port: int
    dp_size: int
    one_server: bool = False
    """Node rank 0 alone serves."""


def placed(alone: StartCmdMsg, place: Place) -> StartCmdMsg:
    """A `standalone` placement, put where the settings say. Its endpoints are numbered as a controller numbers them."""
    nnodes, each = len(place.node_addrs), len(alone.endpoints)
    headless = place.node_rank > 0 and (place.one_server or place.dp_size < nnodes)
    return replace(
        alone,
        endpoints=tuple(
            replace(endpoint, id=place.node_rank * each + local, headless=headless)
            for local, endpoint in enumerate(alone.endpoints)
        ),
        node_rank=place.node_rank,
        nnodes=nnodes,
        node_addrs=place.node_addrs,
        master_dp_ip=alone.master_dp_ip if nnodes == 1 else place.node_addrs[0],
        master_port=place.master_port,
        dp_size=place.dp_size,
    )


def _endpoint(engine: Engine, number: int, pod_ip: str) -> Endpoint:
    return Endpoint(
        id=number,
        ip=pod_ip,
        business_port=str(endpoints.service_port(engine, number)),
        mgmt_port=str(endpoints.management_port(engine, number)),
        bootstrap_port=str(endpoints.bootstrap_port(engine, number)),
    )


def misfit(placement: StartCmdMsg, engine: Engine, *, job_name: str, pod_ip: str) -> str | None:
    """Why `placement` is not for this pod, or None (422, design 3)."""
    if placement.job_name != job_name:
        return f"job_name {placement.job_name!r} is not this pod's {job_name!r}"
    if len(placement.endpoints) != engine.endpoints:
        return f"{len(placement.endpoints)} endpoints were given, this pod declares {engine.endpoints}"
    foreign = [endpoint.ip for endpoint in placement.endpoints if endpoint.ip != pod_ip]
    if foreign:
        return f"endpoint address {foreign[0]} is not this pod's {pod_ip}"
    for endpoint in placement.endpoints:
        for port in (endpoint.business_port, endpoint.mgmt_port):
            if not _is_port(port):
                return f"{port!r} is no port of endpoint {endpoint.id} (expected 1..{MAX_PORT})"
    if not 0 <= placement.node_rank < placement.nnodes:
        return f"node_rank {placement.node_rank} is outside 0..{placement.nnodes - 1}"
    # Without its peers' addresses rank 0 of some engines comes up healthy, but alone (F22).
    if (placement.node_addrs or placement.nnodes > 1) and len(placement.node_addrs) != placement.nnodes:
        return f"node_addrs has {len(placement.node_addrs)} addresses for nnodes {placement.nnodes}"
    return None


def _is_port(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and 1 <= int(text) <= MAX_PORT


def variables(placement: StartCmdMsg, engine: Engine, *, pod_ip: str) -> dict[str, str]:
    """The placement variables of design 2 for one endpoint, for expansion and for the child's environment."""
    endpoint = placement.endpoints[engine.endpoint_number]
    known: dict[str, str | int | None] = {
        "INSTANCE_ID": placement.instance_id,
        "JOB_NAME": placement.job_name,
        "ROLE": placement.role,
        "EPOCH": placement.epoch or 0,
        "NODE_RANK": placement.node_rank,
        "NNODES": placement.nnodes,
        "MASTER_ADDR": placement.master_dp_ip,
        "MASTER_PORT": placement.master_port,
        "NODE_ADDRS": ",".join(placement.node_addrs) or None,
        "DP_RANK": endpoint.id,
        "DP_SIZE": placement.dp_size,
        "POD_IP": pod_ip,
        "PORT": endpoint.business_port,
        "MGMT_PORT": endpoint.mgmt_port,
        "BOOTSTRAP_PORT": endpoint.bootstrap_port or endpoints.bootstrap_port(engine, engine.endpoint_number),
        "DEVICE_IDS": ",".join(device.device_id for device in endpoint.device_infos) or None,
    }
    known.update({f"NODE_ADDR_{rank}": address for rank, address in enumerate(placement.node_addrs)})
    return {name: str(value) for name, value in known.items() if value is not None}
