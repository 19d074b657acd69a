"""Which sockets a supervisor listens on, taken before anything is started (design 3, 8)."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import msgspec

from supervisor.configuration import Configuration
from supervisor.shared.listening import listen_tcp, listen_unix

log = logging.getLogger(__name__)

ANY_ADDRESS = "0.0.0.0"


class Listeners(msgspec.Struct, frozen=True):
    operations: socket.socket
    """The control socket."""
    probes: socket.socket
    node_manager: socket.socket | None
    """Only with a controller and an engine: nobody else has business there."""

    nm_port: int
    probe_port: int
    """As they really are; whoever serves on a socket takes it over."""
    socket_file: Path
    socket_file_id: tuple[int, int]

    def remove_socket_file(self) -> None:
        """At the end; but not one that another supervisor has put in its place. A failure costs no exit code."""
        try:
            if _id_of(self.socket_file) == self.socket_file_id:
                self.socket_file.unlink()
        except FileNotFoundError:
            pass  # somebody has tidied up
        except OSError as error:
            log.warning("cannot remove %s: %s; the next start replaces it", self.socket_file, error.strerror)


def open_listeners(configuration: Configuration) -> Listeners:
    """Raise CannotListen naming the first address that cannot be had, and its holder."""
    section = configuration.settings.supervisor
    host = section.host or configuration.pod_ip
    node_manager = None
    if configuration.coordinated and configuration.engines:
        node_manager = listen_tcp(host, section.port)
    # Plain and harmless, and a kubelet must reach it also where nobody told the pod its address.
    probes = listen_tcp(section.host or section.pod_ip or ANY_ADDRESS, section.probe_port)
    operations = listen_unix(configuration.socket)
    return Listeners(
        operations=operations,
        probes=probes,
        node_manager=node_manager,
        nm_port=_port_of(node_manager) if node_manager is not None else 0,
        probe_port=_port_of(probes),
        socket_file=configuration.socket,
        socket_file_id=_id_of(configuration.socket),
    )


def _id_of(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])
