"""Which sockets a supervisor listens on, taken before anything is started (design 3, 8)."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from supervisor.configuration import Configuration
from supervisor.shared.listening import listen_tcp, listen_unix


@dataclass(frozen=True, slots=True)
class Listeners:
    operations: socket.socket
    """The control socket."""
    probes: socket.socket
    node_manager: socket.socket | None
    """Only with a controller and an engine: nobody else has business there."""

    @property
    def nm_port(self) -> int:
        return _port_of(self.node_manager) if self.node_manager is not None else 0

    @property
    def probe_port(self) -> int:
        return _port_of(self.probes)


def open_listeners(configuration: Configuration) -> Listeners:
    """Raise CannotListen naming the first address that cannot be had, and its holder."""
    section = configuration.settings.supervisor
    host = section.host or configuration.pod_ip
    node_manager = None
    if configuration.coordinated and configuration.engine_unit is not None:
        node_manager = listen_tcp(host, section.port)
    return Listeners(
        operations=listen_unix(configuration.socket),
        probes=listen_tcp(host, section.probe_port),
        node_manager=node_manager,
    )


def _port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])
