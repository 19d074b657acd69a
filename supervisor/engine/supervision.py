"""Everything about one engine of this pod put together: operator, watches, drain.

The composition root of the engine layer: it wires, opens the nursery, and decides nothing. The link to the
controller needs an HTTP client and is added later (`link.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec
import trio

from supervisor import wire
from supervisor.engine.death_watch import watch_for_death, watch_standalone
from supervisor.engine.device_health import watch_devices
from supervisor.engine.drain import Drain
from supervisor.engine.endpoint_engine import EndpointEngine
from supervisor.engine.model import placement as placements
from supervisor.engine.model import progress
from supervisor.engine.model.draining import DrainSettings
from supervisor.engine.model.operation import Operation, OperationSettings
from supervisor.engine.model.placement import Place
from supervisor.engine.node_manager import NodeManager
from supervisor.engine.operator import OperationObserver, Operator
from supervisor.engine.pod_engine import PodEngine, Surroundings
from supervisor.engine.register_manager import RegisterManager
from supervisor.engine.restore_watch import watch_restore
from supervisor.engine.run_history import RunHistory
from supervisor.service.changes import Changes
from supervisor.service.outcomes import ConditionUnmet, DependencyUnmet
from supervisor.shared.error_window import ErrorWindow

log = logging.getLogger(__name__)

LOOK_AGAIN_SEC = 1.0


class SupervisionSettings(msgspec.Struct, frozen=True):
    operation: OperationSettings
    drain: DrainSettings
    coordinated: bool
    """A controller decides about restarts; else the unit's own policy does."""
    place: Place | None
    """By the settings; None: they do not say where the gang's other pods are."""
    alone_after_sec: float
    """`start_without_controller_after_sec`."""


class CannotPlace(Exception):
    """Only a controller can say where this pod stands in its gang; the message says what else would."""


class EngineSupervision:
    """One per engine's unit file. Make it inside trio: it takes the time of boot."""

    def __init__(
        self,
        surroundings: Surroundings,
        registration: RegisterManager,
        history: RunHistory,
        settings: SupervisionSettings,
        end_supervisor: Callable[[str], None],
        observers: Sequence[OperationObserver] = (),
    ) -> None:
        now = trio.current_time()
        known = registration.remembered
        operation = Operation(surroundings.boot_id, booted_at=now, since=now, epoch=known.epoch, term=known.term)
        self.coordinated = settings.coordinated
        self.alone_after_sec = settings.alone_after_sec
        self._place = settings.place
        self._surroundings = surroundings
        self.registration = registration
        self._history = history
        self.engine = PodEngine(surroundings, lambda: self.operator.state, lambda event: self.operator.feed(event))
        secrets = surroundings.here.files.secrets
        self.operator = Operator(operation, settings.operation, self.engine, end_supervisor, observers, secrets)
        self.node_manager = NodeManager(self.operator, self.engine, registration, coordinated=settings.coordinated)
        self.drain = Drain(settings.drain, self.operator, self.engine)
        self.changed = Changes()
        """Anything that a heartbeat or a report may have to tell."""
        self._errors = ErrorWindow()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. The engine's processes belong to its service and are stopped with the other units."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.operator.run)
            for endpoint in self.engine.endpoints:
                self._watch(endpoint, nursery)
            nursery.start_soon(self._relay, self.operator.changed)
            nursery.start_soon(self.drain.run)
            nursery.start_soon(self._watch_dependencies)
            task_status.started()

    def start_alone(self, reason: str) -> None:
        """Start the engine where the settings place it, if nothing was started here yet. Raises CannotPlace."""
        if self._place is None:
            raise CannotPlace(
                "the addresses of the gang's other pods are known to the controller alone: "
                "set supervisor.node_addrs, one address for each node"
            )
        here = self._surroundings
        alone = placements.standalone(
            self.engine.engine, job_name=here.job_name, role=here.role, pod_ip=here.here.pod_ip, epoch=0
        )
        self.operator.feed(progress.ControllerAbsent(placements.placed(alone, self._place), reason))

    def complete(self, view: wire.SupervisorView, now: float) -> wire.SupervisorView:
        """What the engine adds to the supervisor's own view."""
        operation = self.operator.state
        return msgspec.structs.replace(
            view,
            freeze_remaining_sec=round(operation.freeze_remaining(now), 3),
            relaunch_count=operation.relaunch_count,
            instance_id=operation.instance_id or None,
            epoch=operation.epoch or None,
            step=operation.step,
            leaving=operation.leaving,
        )

    def _watch(self, endpoint: EndpointEngine, nursery: trio.Nursery) -> None:
        nursery.start_soon(watch_for_death, endpoint, self.operator)
        nursery.start_soon(watch_restore, endpoint, self.operator)
        nursery.start_soon(endpoint.segments.watch)
        nursery.start_soon(self._relay, endpoint.service.changed)
        if self.coordinated:
            nursery.start_soon(watch_devices, endpoint, self.operator)
        else:
            nursery.start_soon(watch_standalone, endpoint, self.engine, self.operator)

    async def _relay(self, source: Changes) -> None:
        while True:
            changed = source.next()
            self.registration.record(self.operator.state)
            self._history.record(self.operator.state)
            self.changed.announce()
            await changed.wait()

    async def _watch_dependencies(self) -> None:
        """A dependency that failed may be mended by an operator: look again, and say so only when it is new.

        A condition that does not hold is looked at again when the unit has changed: another declaration may have none.
        """
        while True:
            changed = self.engine.services[0].changed.next()
            try:
                await self.engine.dependencies_active()
            except ConditionUnmet as unmet:
                log.info("the engine is not for this pod: %s", unmet)
                await changed.wait()
            except DependencyUnmet as unmet:
                held_back = self._errors.admit("dependency", trio.current_time())
                if held_back is not None:
                    extra = {"unit": self.engine.name, "held_back": held_back}
                    log.error("the engine cannot be prepared: %s", unmet, extra=extra)
                await trio.sleep(LOOK_AGAIN_SEC)
            else:
                break
        self.node_manager.dependencies_active = True
        self.changed.announce()
