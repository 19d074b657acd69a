"""Which sockets a supervisor listens on, taken before anything is started (design 3, 8)."""

from __future__ import annotations

import socket

import msgspec

from supervisor.configuration import Configuration
from supervisor.control_socket import ControlSocket
from supervisor.shared.listening import CannotListen, listen_tcp

ANY_ADDRESS = "0.0.0.0"


class Listeners(msgspec.Struct, frozen=True):
    operations: socket.socket
    """The control socket."""
    probes: socket.socket
    operations_tcp: socket.socket | None
    """Only where it was asked for."""
    node_manager: socket.socket | None
    """Only with a controller and an engine: nobody else has business there."""

    nm_port: int
    probe_port: int
    """As they really are; whoever serves on a socket takes it over."""
    control: ControlSocket


def open_listeners(configuration: Configuration) -> Listeners:
    """Raise CannotListen naming the first address that cannot be had, and its holder."""
    section = configuration.settings.supervisor
    host = section.host or configuration.pod_ip
    node_manager = None
    if configuration.coordinated and configuration.engines:
        node_manager = _listen("port", host, section.port)
    # Plain and harmless, and a kubelet must reach it also where nobody told the pod its address.
    probes = _listen("probe_port", section.host or section.pod_ip or ANY_ADDRESS, section.probe_port)
    operations_tcp = None
    if section.operations_listen is not None:
        operations_tcp = _listen("operations_listen", *section.operations_listen)
    control = ControlSocket(configuration.socket)
    operations = control.listen()
    return Listeners(
        operations=operations,
        probes=probes,
        operations_tcp=operations_tcp,
        node_manager=node_manager,
        nm_port=_port_of(node_manager) if node_manager is not None else 0,
        probe_port=_port_of(probes),
        control=control,
    )


def _listen(setting: str, host: str, port: int) -> socket.socket:
    try:
        return listen_tcp(host, port)
    except CannotListen as error:
        raise CannotListen(f"{error}; end who listens there, or set supervisor.{setting}") from error


def _port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])
