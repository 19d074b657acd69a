"""What one registration says for itself: who it is, what it serves, and whether that can be right.

Nothing here looks at the instance; that is `assembly`'s.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from controller.model.instance import GangSpec
from controller.model.member import Member, MemberKey
from supervisor.wire import RegisterMsg, ReregisterMsg

ROLES = frozenset({"union", "prefill", "decode", "encode"})
MAX_NNODES = 4096
"""As `supervisor.nnodes`: who is missing is counted up to it."""


def member_key(message: RegisterMsg | ReregisterMsg) -> MemberKey:
    if message.node_index is not None:
        node = f"#{message.node_index}"
    else:
        node = message.pod_name or f"{message.pod_ip}:{message.nm_port}"
    return MemberKey(message.namespace, message.job_name, node)


def spec_of(message: RegisterMsg | ReregisterMsg, endpoints: int) -> GangSpec:
    return GangSpec(
        model_name=message.model_name,
        role=_role(message.role),
        nnodes=message.nnodes,
        parallel=message.parallel_config,
        endpoints_per_node=endpoints,
        config_digest=message.config_digest,
        one_server=message.one_server,
    )


def _role(told: str) -> str:
    return "union" if told == "both" else told


def difference(here: GangSpec, told: GangSpec) -> str | None:
    pairs: tuple[tuple[str, object, object], ...] = (
        ("model_name", here.model_name, told.model_name),
        ("role", here.role, told.role),
        ("nnodes", here.nnodes, told.nnodes),
        *(
            (name, getattr(here.parallel, name), getattr(told.parallel, name))
            for name in here.parallel.__struct_fields__
        ),
        ("number of endpoints", here.endpoints_per_node, told.endpoints_per_node),
        ("one_server", here.one_server, told.one_server),
        ("config_digest", here.config_digest, told.config_digest),
    )
    return next((f"its {name} is {b}, not {a}" for name, a, b in pairs if a != b), None)


def member_of(message: RegisterMsg | ReregisterMsg, business: Sequence[str], mgmt: Sequence[str], now: float) -> Member:
    return Member(
        key=member_key(message),
        ip=message.pod_ip,
        port=int(message.nm_port),
        node_rank=0,
        registered_at=now,
        business_ports=tuple(business),
        mgmt_ports=tuple(mgmt),
        boot_id=message.boot_id,
        pod_name=message.pod_name,
        pod_uid=message.pod_uid,
        node_name=message.node_name,
        node_index=message.node_index,
        bootstrap_port=message.bootstrap_port,
        rendezvous_ports=message.rendezvous_ports,
        features=message.features,
        previous_container=message.previous_container,
        ranktable=message.ranktable if isinstance(message, RegisterMsg) else None,
    )


def malformed(message: RegisterMsg | ReregisterMsg, business: Sequence[str], mgmt: Sequence[str]) -> str | None:
    """What no other member is needed to see: everything that is relied on later, when nobody can refuse it."""
    if not _is_address(message.pod_ip):
        return f"pod_ip: {message.pod_ip!r} is not an IP address"
    ports = (
        ("nm_port", (message.nm_port,)),
        ("business_port", business),
        ("mgmt_port", mgmt),
    )
    if wrong := next(((name, port) for name, told in ports for port in told if not _is_port(port)), None):
        return f"{wrong[0]}: {wrong[1]!r} is not a port number"
    if not 1 <= message.nnodes <= MAX_NNODES:
        return f"nnodes: {message.nnodes} is not from 1 to {MAX_NNODES}"
    if _role(message.role) not in ROLES:
        return f"role: {message.role!r} is none of {', '.join(sorted(ROLES))}, both"
    if message.node_index is not None and not 0 <= message.node_index < message.nnodes:
        return f"node_index: {message.node_index} is not below nnodes, which is {message.nnodes}"
    if isinstance(message, ReregisterMsg) and not 0 <= message.node_rank < message.nnodes:
        return f"node_rank: {message.node_rank} is not below nnodes, which is {message.nnodes}"
    if not business or len(business) != len(mgmt):
        return f"business_port names {len(business)} endpoints, mgmt_port {len(mgmt)}: one of each is needed"
    if message.rendezvous_ports is not None and port_range(message.rendezvous_ports) is None:
        return f'rendezvous_ports: {message.rendezvous_ports!r} is not a range such as "29500-29599"'
    return _sizes_disagree(message.parallel_config.dp_size, message.nnodes, len(business))


def _is_address(told: str) -> bool:
    """Not a name, and no zone (`fe80::1%eth0`), which a URL cannot carry."""
    try:
        ipaddress.ip_address(told)
    except ValueError:
        return False
    return "%" not in told


def _is_port(told: str) -> bool:
    return told.isascii() and told.isdecimal() and len(told) <= 5 and 0 < int(told) <= 65535


def _sizes_disagree(dp_size: int, nnodes: int, endpoints: int) -> str | None:
    """Endpoints stand for whole data-parallel ranks, or several nodes' for one."""
    total = nnodes * endpoints
    if dp_size >= 1 and (total % dp_size == 0 or dp_size % total == 0):
        return None
    return f"dp_size {dp_size} does not fit {total} endpoints ({nnodes} nodes with {endpoints} each)"


def port_range(text: str) -> range | None:
    """`"A-B"`, both included; None if it is no such thing."""
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal()):
        return None
    if not 0 < int(first) <= int(last) <= 65535:
        return None
    return range(int(first), int(last) + 1)
