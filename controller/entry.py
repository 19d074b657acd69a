"""What the registry keeps about one living instance. Only the registry writes to it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from controller.model.fault import FaultIdentity
from controller.model.instance import Instance
from controller.model.member import MemberKey
from controller.model.selection import ENGINE_RELAUNCH
from controller.recovery import Recovery
from supervisor.wire import Order, OrderKind

ORDER_SEC = 300.0
"""How long an order waits for a supervisor that we cannot reach and that may still reach us."""
HANDLED_KEPT = 256


@dataclass(eq=False)
class Entry:
    instance: Instance
    recovery: Recovery | None = None
    reported: set[FaultIdentity] = field(default_factory=set)
    """Deaths that the open relaunch answers."""
    waiting: set[MemberKey] = field(default_factory=set)
    """Who was told that another strategy runs, and so froze itself."""
    handled: deque[FaultIdentity] = field(default_factory=lambda: deque(maxlen=HANDLED_KEPT))
    """Deaths that recoveries have dealt with."""
    asked: set[MemberKey] = field(default_factory=set)
    """Members that are being asked directly."""
    told_incomplete_at: float | None = None
    """The `last_registration_at` about which people were told."""
    told_waiting: bool = False
    """People were told what the gang, complete as it is, waits for."""
    look_at: float = 0.0
    """When time alone may next change something; written by the agenda."""
    refused: str = ""
    """The last registration that was refused, if nobody has joined since."""
    _orders: dict[MemberKey, tuple[Order, float]] = field(default_factory=dict)

    def order(self, member: MemberKey, order: Order, now: float) -> None:
        """Put it into the answers to the member's heartbeats: it is idempotent, and no answer is sure."""
        self._orders[member] = (order, now + ORDER_SEC)

    def orders(self, member: MemberKey, now: float) -> tuple[Order, ...]:
        waiting = self._orders.get(member)
        return (waiting[0],) if waiting and now < waiting[1] else ()

    def forget_orders(self, member: MemberKey | None = None) -> None:
        """Of a life or a run that is over; None: of all members."""
        if member is None:
            self._orders.clear()
        else:
            self._orders.pop(member, None)

    def recovery_closed(self) -> None:
        if self.recovery and self.recovery.fault:
            self.reported.add(self.recovery.fault.identity)
        self.recovery = None
        self.handled.extend(identity for identity in self.reported if identity.is_of_one_life)
        self.reported.clear()

    def let_go(self, recovery: Recovery, term: int, now: float) -> None:
        """Whoever was told to wait for the end of a strategy need not wait for the end of its freeze (S07)."""
        for key in self.waiting if recovery.strategy != ENGINE_RELAUNCH else ():
            if member := self.instance.member(key):
                order = Order(
                    order=OrderKind.ABORT,
                    term=term,
                    run_id=recovery.run_id,
                    boot_id=member.boot_id,
                    reason=f"{recovery.strategy} is over and nothing follows",
                )
                self.order(key, order, now)
        self.waiting.clear()
