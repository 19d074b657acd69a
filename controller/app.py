"""The composition root of the controller: what there is, who gets what, in which order it starts and ends."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import trio

from controller.api.exposition import Sources
from controller.api.heartbeat_lane import BackToTheLane, HeartbeatLane, answering
from controller.api.leader_routes import add_leader_route, refuse_once_lost, standby_app
from controller.api.metrics_routes import add_metrics_route, of_caller
from controller.api.openapi import add_openapi_route
from controller.api.operator_routes import add_operator_routes
from controller.api.probe_routes import UPSTREAM_LIVE, UPSTREAM_READY, add_probe_routes, probe_app
from controller.api.routes import Routes
from controller.api.supervisor_routes import add_supervisor_routes
from controller.api.tenancy import places
from controller.api.tool_routes import add_tool_routes
from controller.center import Center
from controller.door import Controller, Door
from controller.election import Leader, Leadership
from controller.elections import election_of
from controller.engines import Engines
from controller.events import EventLog
from controller.journal import Journal
from controller.kubernetes.kubernetes import Make, kubernetes_of
from controller.lead import lead
from controller.model.selection import ENGINE_RELAUNCH
from controller.operators import Operators
from controller.policy import Policy
from controller.reception import Reception
from controller.registry import Registry
from controller.rollouts import Rollouts
from controller.settings import Settings
from controller.strategy.base import Strategy
from controller.strategy.built_in import without_runs
from controller.strategy.engine_relaunch import EngineRelaunch
from controller.strategy.third_party import Offer, Offered, find
from controller.strategy.tools import Tools
from controller.strategy.without_run import WithoutRun
from controller.supervisors import Supervisors
from controller.terms import Terms
from supervisor import wire
from supervisor.shared.last_deadline import LastDeadline
from supervisor.shared.listening import listen_tcp, url_of
from supervisor.shared.serving import serve
from supervisor.shared.tls import Tls, tls_files
from supervisor.shared.tokens import Role, TokenFile

LAST_SEC = 20.0
"""From the first signal to the end of the process, whatever hangs."""
EXIT_KILLED_ITSELF = 70

log = logging.getLogger(__name__)


async def compose(
    policy: Policy,
    leadership: Leadership,
    supervisors: Supervisors,
    tokens: TokenFile | None,
    is_ready: Callable[[], bool] = lambda: True,
    find_leader: Callable[[], Leader | None] = lambda: None,
    engines: Engines | None = None,
    offers: Mapping[str, Offer] = MappingProxyType({}),
    make_kubernetes: Make | None = None,
) -> Controller:
    """A fresh controller from what the store holds; `offers`: strategies of others. Raises Deposed."""
    store = leadership.store
    loaded = await store.load()
    events = EventLog(loaded.events, loaded.event_series)
    registry = Registry(policy, events, Terms(store, loaded.term), loaded)
    journal = Journal(store, registry, events)
    operators = Operators(registry)
    tools = Tools(registry, journal, operators, supervisors, engines or Engines())
    strategies: dict[str, Strategy] = {
        ENGINE_RELAUNCH: EngineRelaunch(registry, supervisors, leadership, journal, policy.max_concurrent_runs),
        **without_runs(tools, policy),
        **{name: WithoutRun(Offered(offer, tools)) for name, offer in offers.items()},
    }
    routes = Routes("controller", tokens, places(registry), policy.limits)
    reception = Reception(registry)
    add_supervisor_routes(routes, reception, operators, registry, journal)
    add_tool_routes(routes, registry, operators, events, journal)
    add_operator_routes(routes, registry, operators, Rollouts(registry, supervisors, operators), journal)
    add_probe_routes(routes, is_ready, live=UPSTREAM_LIVE, ready=UPSTREAM_READY)
    add_leader_route(
        routes, lambda: wire.LeaderView(role="leader", term=registry.terms.current, leader=leadership.url or None)
    )
    refuse_once_lost(routes, leadership, find_leader)
    kubernetes = make_kubernetes(registry, journal, leadership) if make_kubernetes else None
    sources = Sources(registry, journal, kubernetes.trouble if kubernetes else None)
    add_metrics_route(routes, of_caller(sources), Role.READ)
    add_openapi_route(routes)
    beside = kubernetes.run if kubernetes else trio.sleep_forever
    center = Center(registry, supervisors, leadership, journal, strategies, beside)
    return Controller(leadership, registry, events, supervisors, center, routes, answering(reception, tokens), sources)


async def main(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; a second one hurries.

    Raises CannotListen, TokenError, TlsError and NotInACluster before anything has begun.
    """
    make_kubernetes = kubernetes_of(settings.kubernetes, os.environ)
    tokens = None
    if settings.auth.token_file:
        tokens = TokenFile(Path(settings.auth.token_file), trio.current_time())
    elif settings.auth.allow_anonymous and not settings.tls.client_ca:
        log.warning("everybody who reaches this controller may command it: auth.allow_anonymous is set")
    listener = listen_tcp(settings.controller.host, settings.controller.port)
    probe_listener = listen_tcp(settings.controller.host, settings.controller.probe_port)
    files = tls_files(settings.tls.cert, settings.tls.key, settings.tls.client_ca)
    tls = Tls(files) if files is not None else None
    supervisors = Supervisors(
        lambda namespace: tokens.current_in(namespace, trio.current_time()) if tokens else None, tls=tls
    )
    third_party = find()
    for error in third_party.errors:
        log.error("%s", error)
    policy = replace(settings.policy(), third_party=third_party.rules)
    stop, last_deadline = trio.Event(), LastDeadline()
    election = election_of(settings, settings.controller.advertise_url or url_of(listener, tls is not None))

    def is_ready() -> bool:
        return not stop.is_set()

    async def fresh(leadership: Leadership) -> Controller:
        return await compose(
            policy,
            leadership,
            supervisors,
            tokens,
            is_ready,
            lambda: election.leader,
            offers=third_party.offers,
            make_kubernetes=make_kubernetes,
        )

    door = Door(standby_app(lambda: election.leader, is_ready))
    async with trio.open_nursery() as nursery:
        await nursery.start(_watch_signals, stop, nursery.cancel_scope, last_deadline)
        nursery.start_soon(lead, election, fresh, door)
        async with trio.open_nursery() as servers:
            lane = HeartbeatLane(door.answer_heartbeat)
            url = await servers.start(partial(serve, BackToTheLane(door), listener, stop, tls, lane=lane))
            probes = probe_app(is_ready, lambda: door.controller.sources if door.controller else None)
            probe_url = await servers.start(serve, probes, probe_listener, stop)
            log.info("the controller serves", extra={"url": url, "probe_url": probe_url, "pid": os.getpid()})
            await stop.wait()
            door.hang_up()
        # Nobody can report any more, so nobody is promised a recovery that will not come.
        nursery.cancel_scope.cancel(reason="asked to stop")
    with trio.move_on_after(1):
        await supervisors.aclose()
    log.info("the controller has stopped")


async def _watch_signals(
    stop: trio.Event,
    everything: trio.CancelScope,
    last_deadline: LastDeadline,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        # `podvisor` blocks them in its first line, so that none is lost while it is imported.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP:
                log.info("nothing to reload: the token file is read again by itself")
            elif stop.is_set():
                everything.cancel(reason="asked to stop twice")
            else:
                log.info("stopping", extra={"signal": signal.Signals(number).name})
                last_deadline.exit_after(LAST_SEC, EXIT_KILLED_ITSELF)
                stop.set()
