"""What the API's port is in front of: the controller that leads here, and a standby's answers while none does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from quart_trio import QuartTrio

from controller.api.exposition import Sources
from controller.api.heartbeat_lane import Answer
from controller.api.routes import Routes
from controller.center import Center
from controller.election import Leadership
from controller.events import EventLog
from controller.registry import Registry
from controller.supervisors import Supervisors
from supervisor.shared.http_app import asgi
from supervisor.shared.serving import Application, Message, Receive, Send


@dataclass(frozen=True, slots=True)
class Controller:
    """All that one leadership lasts for: everything but the sockets; `center.run` is its one task."""

    leadership: Leadership
    registry: Registry
    events: EventLog
    supervisors: Supervisors
    center: Center
    routes: Routes
    answer_heartbeat: Answer
    """Beside the application."""
    sources: Sources
    """What is measured."""

    @property
    def app(self) -> Application:
        return asgi(self.routes.app)


class Door:
    """An ASGI application that outlives leaderships."""

    def __init__(self, standby: QuartTrio) -> None:
        self._standby = asgi(standby)
        self._controller: Controller | None = None

    @property
    def controller(self) -> Controller | None:
        """The one that leads, at this moment; None on a standby."""
        found = self._controller
        return None if found is None or found.leadership.is_lost else found

    @contextmanager
    def opened(self, controller: Controller) -> Iterator[None]:
        """Requests that come in go to `controller` until the block ends or its leadership is lost."""
        self._controller = controller
        try:
            yield
        finally:
            self._controller = None
            controller.events.ring.close()

    def hang_up(self) -> None:
        """On those who follow events, so that the server can end."""
        if self._controller is not None:
            self._controller.events.ring.close()

    def answer_heartbeat(self, authorization: str | None, body: bytes) -> bytes | None:
        """For the lane: a standby answers no heartbeat, so that its application says who leads."""
        leading = self.controller
        return None if leading is None else leading.answer_heartbeat(authorization, body)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """The server's own start and end are the standby's, which is always there."""
        leading = self.controller if scope["type"] == "http" else None
        application = self._standby if leading is None else leading.app
        await application(scope, receive, send)
