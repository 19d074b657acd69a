"""The part of the supervisor that needs an HTTP stack: its APIs and the link to the controller.

Imported in a worker thread after the first units were started; importing it is most of the start-up time, so
nothing that runs before may import it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from supervisor.api.metrics import add_metrics_route
from supervisor.api.node_manager import node_manager_app
from supervisor.api.operations import operations_app
from supervisor.api.probes import probes_app
from supervisor.api.readiness import Readiness
from supervisor.configuration import Configuration
from supervisor.listeners import Listeners
from supervisor.pod import Pod
from supervisor.pod_metrics import Gauges
from supervisor.pod_operations import PodOperations
from supervisor.shared.serving import serve
from supervisor.shared.tls import Tls, tls_files
from supervisor.shared.tokens import TokenFile
from supervisor.socket_keeper import keep_serving

if TYPE_CHECKING:
    from supervisor.engine.link import ControllerLink

log = logging.getLogger(__name__)


async def go_online(pod: Pod, configuration: Configuration, listeners: Listeners) -> None:
    """Serve and keep in touch with the controller until cancelled. The sockets are taken over."""
    stop = trio.Event()
    token, tls = _token(configuration), _tls(configuration)
    operations = PodOperations(pod)
    link: ControllerLink | None = None

    def readiness() -> Readiness:
        if link is None:
            return pod.readiness(None)
        return pod.readiness(link.heartbeat.connection.registered, link.why_not_serving())

    def gauges() -> Gauges:
        connection = None if link is None else link.heartbeat.connection
        return pod.gauges(None, None) if connection is None else pod.gauges(connection.is_up, connection.answered_at)

    local, probes = operations_app(operations, None), probes_app(readiness)
    for app in (local, probes):
        add_metrics_route(app, pod.metrics, gauges)
    async with trio.open_nursery() as nursery:
        await nursery.start(keep_serving, local, listeners.control, listeners.operations)
        await nursery.start(serve, probes, listeners.probes, stop)
        if listeners.operations_tcp is not None:
            remote = operations_app(operations, token, configuration.settings.pod.namespace)
            add_metrics_route(remote, pod.metrics, gauges)
            url = await nursery.start(serve, remote, listeners.operations_tcp, stop, tls)
            log.info("the operations API is served at %s", url)
        if listeners.node_manager is not None and pod.supervision is not None:
            app = node_manager_app(pod.supervision.node_manager, token, configuration.settings.pod.namespace)
            await nursery.start(serve, app, listeners.node_manager, stop, tls)
            operations.link = link = _link(pod, configuration, token, tls)
            pod.farewell, pod.last_word = link.heartbeat.leave, link.heartbeat.say_goodbye
            pod.relaunch_request.ask = operations.ask_for_relaunch
            nursery.start_soon(link.run)
            nursery.start_soon(pod.events.watch_controller, link.heartbeat.connection, lambda: link.client.url)
        log.info("online", extra={"socket": str(configuration.socket), "probe_port": listeners.probe_port})


def _link(pod: Pod, configuration: Configuration, token: TokenFile | None, tls: Tls | None) -> ControllerLink:
    assert pod.supervision is not None, "checked by the caller"
    section, namespace = configuration.settings.supervisor, configuration.settings.pod.namespace
    # Imported by the program beforehand; without a controller nobody needs an HTTP client in this process.
    from supervisor.engine.controller_client import ControllerClient
    from supervisor.engine.link import ControllerLink

    client = ControllerClient(
        section.controller_url,
        lambda: token.current_in(namespace, trio.current_time()) if token is not None else None,
        tls=tls,
    )
    return ControllerLink(client, pod.supervision, section.heartbeat_interval_seconds)


def _tls(configuration: Configuration) -> Tls | None:
    """Raises TlsError."""
    section = configuration.settings.tls
    files = tls_files(section.cert, section.key, section.client_ca)
    return Tls(files) if files is not None else None


def _token(configuration: Configuration) -> TokenFile | None:
    """Raises TokenError: a token that cannot be read is no reason to serve everybody."""
    path = configuration.settings.auth.token_file
    return TokenFile(Path(path), trio.current_time()) if path is not None else None
