"""What supervisors say: registrations, heartbeats, fault reports; and what they are told.

Synchronous, as the registry to which all of it goes: an answer is the truth of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec

from controller.entry import Entry
from controller.model import assembly
from controller.model.assembly import Joined, Rejected
from controller.model.classification import check_hardware_report, hardware_fault, software_fault
from controller.model.draining import is_released, why_drain
from controller.model.fault import Fault, FaultLevel
from controller.model.instance import Instance
from controller.model.judgement import Judgement, judge_report
from controller.model.member import InstanceKey, Member, same_boot, seen_in_heartbeat
from controller.model.need import must_leave, run_needed
from controller.model.relaunch import exchange
from controller.model.relaunch.run import Cause, RunReason
from controller.model.selection import ENGINE_RELAUNCH
from controller.model.wanted import Wanted
from controller.recovery import Recovery
from controller.registry import Registry
from controller.terms import check_credible
from supervisor import wire
from supervisor.shared.error_window import ErrorWindow

REFUSED_WINDOW_SEC = 300.0
"""A supervisor that is refused registers again for ever; the same refusal is told once in this time."""


FromSupervisor = wire.RegisterMsg | wire.ReregisterMsg | wire.HeartbeatMsg | wire.SoftwareFaultMsg


class Unknown(Exception):
    """A message from somebody who must register (again) first: answered 503."""


class Reception:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._repeated = ErrorWindow()
        self._refused = ErrorWindow(REFUSED_WINDOW_SEC)

    def register(self, message: wire.RegisterMsg, now: float) -> Joined | Rejected:
        """Raises Incredible."""
        self._learn(message)
        key = assembly.instance_key(message)
        answer = assembly.register(
            self._registry.newest(key),
            message,
            now=now,
            new_id=self._registry.next_id,
            settings=self._registry.policy.instance,
        )
        return self._registered(answer, message, now)

    def reregister(self, message: wire.ReregisterMsg, now: float) -> Joined | Rejected:
        """Raises Incredible."""
        self._learn(message)
        check_credible("instance_id", message.instance_id, self._registry.next_id)
        key = assembly.instance_key(message)
        newest = self._registry.newest(key)
        if newest is None and self._registry.has(message.instance_id):
            answer: Joined | Rejected = Rejected(
                wire.ErrorCode.STALE_EPOCH,
                f"the id {message.instance_id} is another instance's: stop the engines and register anew",
            )
        else:
            answer = assembly.reregister(
                newest,
                message,
                now=now,
                new_id=self._registry.next_id,
                settings=self._registry.policy.instance,
            )
        return self._registered(answer, message, now)

    def heartbeat(self, message: wire.HeartbeatMsg, now: float) -> wire.HeartbeatAnswer:
        """Raises Unknown, Incredible."""
        self._learn(message)
        entry = self._registry.of_key(InstanceKey(message.namespace, message.job_name))
        if entry is None or message.ins_id not in (0, entry.instance.id):
            raise Unknown(f"{message.namespace}/{message.job_name} is not known as instance {message.ins_id}")
        member = assembly.find_member(
            entry.instance,
            ip=message.ip,
            port=message.nm_port,
            pod_uid=message.pod_uid,
            boot_id=message.boot_id,
        )
        if member is None or not same_boot(member.boot_id, message.boot_id):
            raise Unknown(f"{message.ip} is not known as a member of {entry.instance.key} in this boot")
        self._registry.observe(entry, member.key, seen_in_heartbeat(message, now), now)
        instance = entry.instance
        here = instance.member(member.key) or member
        return wire.HeartbeatAnswer(
            term=self._registry.terms.current,
            instance_id=instance.id,
            run_id=entry.recovery.run_id if entry.recovery else None,
            instance_status=instance.status,
            drain=why_drain(instance, here),
            released=is_released(instance, here),
            orders=self._orders(entry, here, now),
        )

    def _learn(self, message: FromSupervisor) -> None:
        """The next epoch is above all that are told, and no instance was ever relaunched so often."""
        check_credible("epoch", message.epoch or 0, 0)
        self._registry.terms.learn(message.term)

    def _orders(self, entry: Entry, member: Member, now: float) -> tuple[wire.Order, ...]:
        if entry.recovery is None and must_leave(entry.instance, member):
            reason = f"held: {entry.instance.held}"
            term = self._registry.terms.current
            return (wire.Order(order=wire.OrderKind.LEAVE, term=term, boot_id=member.boot_id, reason=reason),)
        return entry.orders(member.key, now)

    def report_software_fault(self, message: wire.SoftwareFaultMsg, now: float) -> wire.FaultAnswer:
        """Raises Unknown, Incredible."""
        self._learn(message)
        entry, member = self._reporter(message)
        fault = software_fault(message, member.key)
        judgement = judge_report(
            fault,
            entry.instance,
            underway=entry.recovery.underway if entry.recovery else None,
            handled=frozenset(entry.handled),
            budget=self._registry.budgets.of(entry.instance),
            settings=self._registry.policy.relaunch,
            choices=self._registry.policy.choices,
        )
        self._tell_judged(entry, fault, judgement, message.exception_type, now)
        if judgement.recovery is wire.Recovery.ENGINE_RELAUNCH:
            entry.reported.add(fault.identity)
        if judgement.preempts and entry.recovery:
            entry.recovery.give_way(fault)
        is_queued = entry.recovery is not None and entry.recovery.run is None
        if judgement.opens is not None:
            self._registry.open(entry, self._wanted(entry, fault, judgement.opens), now)
        if entry.recovery and (judgement.to_inbox or (judgement.opens and is_queued)):
            entry.recovery.inbox.post(_for_the_run(fault))
        if entry.recovery and judgement.recovery is wire.Recovery.PENDING:
            entry.waiting.add(member.key)
        answer = self._answer(judgement.recovery, entry.recovery)
        wait_sec = self._registry.wait_sec(entry, now) if fault.canary else 0.0
        return msgspec.structs.replace(answer, orders=entry.orders(member.key, now), wait_sec=wait_sec)

    def report_hardware_fault(
        self, message: wire.HardwareFaultMsg, may_speak_for: Callable[[str], bool], now: float
    ) -> tuple[wire.FaultAnswer, list[Instance]]:
        """The answer, and the instances that are others since. Who reports is no supervisor, and nobody freezes.

        `may_speak_for` tells of a namespace whether the sender may; members elsewhere are not looked at.
        Raises Unknown and WireError.
        """
        level = check_hardware_report(message)
        found = list(self._on(message, may_speak_for))
        if not found:
            where = message.pod_ip or message.node_name
            raise Unknown(f"no member is known at {where}")
        for entry, member in found:
            self._registry.device_reported(entry, hardware_fault(message, level, member), now)
        changed = list({entry.instance.id: entry.instance for entry, _ in found}.values())
        under = [entry.recovery for entry, _ in found if entry.recovery and level is not FaultLevel.HEALTHY]
        if not under:
            return self._answer(wire.Recovery.NONE, None), changed
        gravest = max(under, key=lambda recovery: recovery.level)
        is_relaunch = gravest.strategy == ENGINE_RELAUNCH
        told = wire.Recovery.ENGINE_RELAUNCH if is_relaunch else wire.Recovery.PENDING
        return self._answer(told, gravest), changed

    def _on(
        self, message: wire.HardwareFaultMsg, may_speak_for: Callable[[str], bool]
    ) -> Iterator[tuple[Entry, Member]]:
        """All members at that address, or on that machine."""
        for entry in self._registry.entries():
            for member in entry.instance.members:
                is_here = message.pod_ip in (None, member.ip) and message.node_name in (None, member.node_name)
                if is_here and may_speak_for(member.key.namespace):
                    yield entry, member

    def _answer(self, told: wire.Recovery, recovery: Recovery | None) -> wire.FaultAnswer:
        return wire.FaultAnswer(
            recovery=told,
            run_id=recovery.run_id if recovery else None,
            term=self._registry.terms.current,
            strategy=recovery.strategy if recovery else None,
        )

    def _wanted(self, entry: Entry, fault: Fault, strategy: str) -> Wanted:
        if strategy != ENGINE_RELAUNCH:
            return Wanted(strategy, Cause(RunReason.FAULT, fault.message), fault.level, fault)
        is_escalated = bool(entry.instance.prev_strategy_failed)
        reason = RunReason.ESCALATION if is_escalated else RunReason.FAULT
        hardware = fault.category is wire.FaultCategory.HARDWARE
        by_probe, by_canary = fault.probe_derived and not is_escalated, fault.canary and not is_escalated
        cause = Cause(reason, fault.message, by_probe, hardware=hardware, canary=by_canary)
        needed = run_needed(entry.instance, self._registry.policy.relaunch)
        if needed is not None and not needed.endpoint_abnormal:
            # A lost member is graver than a death, and says more.
            cause = needed
        return Wanted(strategy, replace(cause, reporter=fault.identity.member))

    def _tell_judged(self, entry: Entry, fault: Fault, judgement: Judgement, kind: str, now: float) -> None:
        held_back = self._repeated.admit(str(fault.identity), now)
        if held_back is None:
            return
        more = f" ({held_back} reports like it were not shown)" if held_back else ""
        self._registry.notices.tell(
            entry,
            "fault",
            f"{fault.message}; answered {judgement.recovery}: {judgement.reason}{more}",
            level="warning",
            reason=kind,
            member=fault.identity.member,
        )

    def _registered(
        self, answer: Joined | Rejected, message: wire.RegisterMsg | wire.ReregisterMsg, now: float
    ) -> Joined | Rejected:
        self._registry.joined(answer, message.boot_id, now)
        if isinstance(answer, Rejected):
            self._tell_refused(answer, message, now)
        return answer

    def _tell_refused(self, answer: Rejected, message: wire.RegisterMsg | wire.ReregisterMsg, now: float) -> None:
        who = f"{message.pod_ip}:{message.nm_port} of {message.namespace}/{message.job_name}"
        if entry := self._registry.of_key(assembly.instance_key(message)):
            entry.refused = answer.message
        held_back = self._refused.admit(f"{who} {answer.message}", now)
        if held_back is None:
            return
        self._registry.events.append(
            "member",
            f"registration of {who} refused: {answer.message}",
            level="warning",
            namespace=message.namespace,
            job_name=message.job_name,
            instance_id=entry.instance.id if entry else None,
            reason=answer.code,
        )

    def _reporter(self, message: wire.SoftwareFaultMsg) -> tuple[Entry, Member]:
        """An unextended peer names neither job nor instance nor boot, so that its address in the namespace, which is
        the one in which it has registered, has to do."""
        for entry in self._registry.entries():
            key = entry.instance.key
            if key.namespace != message.namespace or message.job_name not in (None, key.job_name):
                continue
            if message.instance_id not in (None, 0, entry.instance.id):
                continue
            member = assembly.find_member(entry.instance, ip=message.pod_ip, port=None, boot_id=message.boot_id)
            if member is not None:
                return entry, member
        raise Unknown(f"{message.pod_ip} is not known as a member of any instance")


def _for_the_run(fault: Fault) -> exchange.Fault:
    hardware = fault.category is wire.FaultCategory.HARDWARE
    told = fault.identity
    return exchange.Fault(told.member, told.epoch, fault.message, fault.probe_derived, fault.canary, hardware)
