"""The network interfaces of this pod; which of them engines are told of is decided by `launchers.fabric`."""

from __future__ import annotations

import socket


def addresses_by_interface() -> dict[str, tuple[str, ...]]:
    import psutil  # for engines that span nodes; others need not pay for it before their first exec

    families = (socket.AF_INET, socket.AF_INET6)
    return {
        name: tuple(found.address.partition("%")[0] for found in addresses if found.family in families)
        for name, addresses in psutil.net_if_addrs().items()
    }
