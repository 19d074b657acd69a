"""What is said to people about an instance, in one sentence each: in which words, how alarming, and what only once.

When there is something to say is the registry's to know, and who hears it `EventLog`'s.
"""

from __future__ import annotations

from controller.entry import Entry
from controller.events import EventLog
from controller.model import identity
from controller.model.assembly import Joined, Life, missing
from controller.model.instance import Instance, InstanceStatus
from controller.model.member import Member, MemberKey, Observation
from controller.model.need import not_prepared, waits_for
from controller.model.relaunch.exchange import Answer, Refused, Unreachable


class Notices:
    def __init__(self, events: EventLog) -> None:
        self._events = events

    def tell(
        self,
        entry: Entry,
        kind: str,
        message: str,
        *,
        level: str = "info",
        reason: str | None = None,
        member: MemberKey | None = None,
        model_name: str | None = None,
        role: str | None = None,
        endpoints: tuple[str, ...] = (),
    ) -> None:
        """An event about this instance."""
        instance = entry.instance
        run = entry.recovery.run if entry.recovery else None
        self._events.append(
            kind,
            message,
            level=level,
            namespace=instance.key.namespace,
            job_name=instance.key.job_name,
            instance_id=instance.id,
            status=str(instance.status),
            run_id=entry.recovery.run_id if entry.recovery else None,
            step=entry.recovery.step if entry.recovery else None,
            epoch=run.epoch if run else instance.epoch,
            reason=reason,
            member=str(member) if member else None,
            model_name=model_name,
            role=role,
            endpoints=endpoints,
        )

    def joined(self, entry: Entry, joined: Joined) -> None:
        self.tell(entry, "member", _welcome(joined), member=joined.member)

    def heard_again(self, entry: Entry, member: Member) -> None:
        self.tell(entry, "member", f"{member.address} is heard again", member=member.key)

    def silent(self, entry: Entry, member: Member, answer: Answer, now: float) -> None:
        """Nor did the life that is known answer when it was asked directly."""
        silent = f"no heartbeat of {member.address} for {now - member.last_heard:.0f} s"
        self.tell(entry, "member", f"{silent}; asked directly: {_words(answer)}", level="warning", member=member.key)

    def introduced(self, entry: Entry) -> None:
        """It serves in an epoch in which nobody knows it."""
        instance = entry.instance
        self.tell(
            entry,
            "identity",
            identity.announcement(instance),
            reason=instance.reason,
            model_name=instance.spec.model_name,
            role=instance.spec.role,
            endpoints=identity.endpoints(instance),
        )

    def changed(self, entry: Entry, before: InstanceStatus) -> None:
        """A status that it has already."""
        instance = entry.instance
        if instance.status is before:
            return
        words = f"{before} -> {instance.status}: {instance.reason}"
        level = "warning" if _is_alarming(instance) else "info"
        self.tell(entry, "instance", words, level=level, reason=instance.reason)

    def waiting(self, entry: Entry) -> None:
        """Once, what keeps a complete gang from being started; who is missing is told by registrations."""
        instance = entry.instance
        if entry.told_waiting or not instance.complete or instance.held or not not_prepared(instance):
            return
        if words := waits_for(instance):
            entry.told_waiting = True
            self.tell(entry, "member", words)

    def incomplete(self, entry: Entry, timeout_sec: float, now: float) -> None:
        """Once, who has been missing for too long since the last registration."""
        instance = entry.instance
        is_overdue = now - instance.last_registration_at > timeout_sec
        if instance.complete or not is_overdue or entry.told_incomplete_at == instance.last_registration_at:
            return
        entry.told_incomplete_at = instance.last_registration_at
        self.tell(entry, "instance", f"not assembled: {missing(instance)}", level="warning")


def _is_alarming(instance: Instance) -> bool:
    """Who leaves was asked to: that is no alarm."""
    bad = instance.status in (InstanceStatus.INACTIVE, InstanceStatus.DELETED)
    return bad and not any(member.leaving for member in instance.members)


def _welcome(joined: Joined) -> str:
    """Who came, in which life, and who is still missing."""
    member = joined.instance.member(joined.member)
    who = f"{member.address} registered as node {member.node_rank}" if member else str(joined.member)
    if joined.life is Life.NEW_BOOT:
        who += ", its container restarted" if joined.place == joined.member else f", in place of {joined.place.node}"
    if member and member.previous_container:
        who += f" (the one before was {member.previous_container})"
    return f"{who}: {missing(joined.instance) or 'all are here'}"


def _words(answer: Answer) -> str:
    """Why a direct question was not answered by the life that was asked."""
    if isinstance(answer, Observation):
        return "another boot answers, its container restarted"
    return answer.message if isinstance(answer, Unreachable | Refused) else str(answer)
