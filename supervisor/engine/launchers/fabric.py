"""By which interface and address this pod's ranks speak to those of other pods, and how engines are told.

Collectives look for an interface themselves, and in a pod with several they may find one that leads nowhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

import msgspec


class Fabric(msgspec.Struct, frozen=True):
    interface: str
    address: str


class NoSuchInterface(Exception):
    """The one that the settings name; the message says what there is."""


def fabric_of(interfaces: Mapping[str, Sequence[str]], wanted: str | None, pod_ip: str) -> Fabric | None:
    """The interface that the settings name, else the one with the pod's address; None if none has it.

    An address is of the pod's own family: ranks of other pods are met by theirs. Raise NoSuchInterface.
    """
    if wanted is None:
        return next((Fabric(name, pod_ip) for name, addresses in interfaces.items() if pod_ip in addresses), None)
    if wanted not in interfaces:
        raise NoSuchInterface(f"there is no interface {wanted!r} in this pod, only {', '.join(sorted(interfaces))}")
    addresses = interfaces[wanted]
    if pod_ip in addresses:
        return Fabric(wanted, pod_ip)
    family = ipaddress.ip_address(pod_ip).version
    fitting = [address for address in addresses if _global_version(address) == family]
    if not fitting:
        raise NoSuchInterface(f"the interface {wanted!r} has no IPv{family} address, as the pod's address {pod_ip} is")
    return Fabric(wanted, fitting[0])


def network_environment(host_variable: str, pod_ip: str, fabric: Fabric | None) -> dict[str, str]:
    """The engine's own variable for its address, and those of the libraries for collectives.

    NCCL takes names as beginnings unless `=` stands before them (its user guide, NCCL_SOCKET_IFNAME); Gloo and HCCL
    take a name as it is.
    """
    if fabric is None:
        return {host_variable: pod_ip}
    return {
        host_variable: fabric.address,
        "GLOO_SOCKET_IFNAME": fabric.interface,
        "NCCL_SOCKET_IFNAME": f"={fabric.interface}",
        "HCCL_SOCKET_IFNAME": fabric.interface,
    }


def _global_version(address: str) -> int | None:
    """4 or 6; None for a link-local address, which means nothing in another pod."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return None if parsed.is_link_local else parsed.version
