"""How registrations become an instance, and where each member's engines stand in it (design 5, 7, 8)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controller.model.instance import Instance
from controller.model.member import InstanceKey, Member, MemberKey
from supervisor.wire import Endpoint, ErrorCode, RegisterMsg, ReregisterMsg, StartCmdMsg

DEFAULT_RENDEZVOUS_PORTS = "29500-29599"


class Life(StrEnum):
    """What a registration means for the life of a member."""

    NEW = "new"
    """Not known before."""
    SAME = "same"
    """The same boot again: its first registration, or our answer to it, was lost."""
    NEW_BOOT = "new_boot"
    """The container restarted: the old life is over (tell an open run `Registered`)."""


@dataclass(frozen=True, slots=True)
class Joined:
    instance: Instance
    member: MemberKey
    life: Life


@dataclass(frozen=True, slots=True)
class Rejected:
    """Answered 409 (or 400 for a malformed one) with both values named.

    `instance` differs from before only if the old life of a known member was seen to be over, which counts
    although its new life may not join yet; `superseded` then names it (tell an open run `Registered`).
    """

    code: ErrorCode
    message: str
    instance: Instance | None = None
    superseded: MemberKey | None = None


def instance_key(message: RegisterMsg | ReregisterMsg) -> InstanceKey:
    return InstanceKey(message.namespace, message.job_name)


def member_key(message: RegisterMsg | ReregisterMsg) -> MemberKey:
    raise NotImplementedError


def heartbeat_member(
    instance: Instance, ip: str, nm_port: str | None, pod_uid: str | None, boot_id: str | None
) -> Member | None:
    """Whose heartbeat or report this is: by boot id, else pod uid, else address."""
    raise NotImplementedError


def register(
    instance: Instance | None, message: RegisterMsg, now: float, new_id: int, last_epoch: int
) -> Joined | Rejected:
    """A supervisor that has just booted. `instance` is the living one of this key, if any.

    `new_id` and `last_epoch` (of the key, over all its instances) are used only if one has to be made.
    """
    raise NotImplementedError


def reregister(instance: Instance | None, message: ReregisterMsg, now: float) -> Joined | Rejected:
    """A supervisor whose engines run, after the controller forgot it: takes it over as it is."""
    raise NotImplementedError


def missing(instance: Instance) -> str:
    """For people: `2 of 4 members have registered: node 1 and 3 are missing`; "" if complete."""
    raise NotImplementedError


def endpoints_of(instance: Instance, member: Member) -> tuple[Endpoint, ...]:
    """The endpoints of one pod with their last seen status; ids count over all members by rank."""
    raise NotImplementedError


def placement(instance: Instance, member: Member, epoch: int, run_id: str, term: int) -> StartCmdMsg:
    """Where the engines of this pod stand in their gang in `epoch`. The instance must be complete."""
    raise NotImplementedError
