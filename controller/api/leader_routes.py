"""Who leads, for whoever asks, and what a controller answers that does not: 421 with the leader's URL (design 5)."""

from __future__ import annotations

from collections.abc import Callable

from quart import Response, request
from quart_trio import QuartTrio

from controller.api.probe_routes import UPSTREAM_LIVE, UPSTREAM_READY, add_probe_routes
from controller.api.routes import Routes
from controller.election import Leader, Leadership
from supervisor import wire
from supervisor.shared.http_app import answer
from supervisor.wire import ErrorCode

LEADER = "/leader"
ANYBODYS = frozenset({LEADER, UPSTREAM_LIVE, *UPSTREAM_READY})
"""Answered by whoever serves, leader or not."""
MISDIRECTED = 421
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]

FindLeader = Callable[[], Leader | None]
"""The other controller that leads, as far as is known."""


def add_leader_route(routes: Routes, view: Callable[[], wire.LeaderView]) -> None:
    """Needs no token: whoever has to choose among controllers may have none."""

    @routes.get(LEADER, answer=wire.LeaderView, role=None)
    async def leader() -> wire.LeaderView:
        """Whether this controller leads, or who does."""
        return view()


def standby_app(find_leader: FindLeader, is_ready: Callable[[], bool]) -> QuartTrio:
    """What is answered while another leads, or nobody: it is ready, which is all that a standby has to be."""
    routes = Routes("controller-standby", None)
    add_probe_routes(routes, is_ready, live=UPSTREAM_LIVE, ready=UPSTREAM_READY)

    def view() -> wire.LeaderView:
        found = find_leader()
        return wire.LeaderView(role="standby", term=found.term if found else None, leader=found.url if found else None)

    add_leader_route(routes, view)

    async def refuse(path: str) -> Response:
        return _misdirected(find_leader())

    routes.app.add_url_rule("/<path:path>", "anything", refuse, methods=METHODS)
    return routes.app


def refuse_once_lost(routes: Routes, leadership: Leadership, find_leader: FindLeader) -> None:
    """What a request under way was answered when the leadership was lost is nobody's word any more."""

    @routes.app.after_request
    async def check(response: Response) -> Response:
        is_void = leadership.is_lost and request.path not in ANYBODYS
        return _misdirected(find_leader()) if is_void else response


def _misdirected(leader: Leader | None) -> Response:
    """The connection is closed, so that whoever asks again by a name may come to another controller."""
    message = f"this controller stands by; {leader.url} leads" if leader else "nobody is known to lead: ask again"
    body = wire.ErrorBody(
        error=ErrorCode.NOT_LEADER,
        message=message,
        term=leader.term if leader else None,
        leader=leader.url if leader else None,
    )
    return answer(body, MISDIRECTED, Connection="close")
