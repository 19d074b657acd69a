"""What time alone changes about an instance, and when one more heartbeat changes nothing else.

So a fleet that is well costs what its heartbeats cost: nobody looks at an instance of which there is no news.
"""

from __future__ import annotations

from dataclasses import replace

from controller.model.instance import Instance, InstanceStatus
from controller.model.member import MemberKey, Observation
from controller.model.settings import InstanceSettings

LONGEST_SEC = 60.0
"""Look again after so long, whatever was reckoned."""


def changes_at(instance: Instance, now: float, settings: InstanceSettings, assemble_timeout_sec: float) -> float:
    """The next moment, perhaps `now`, after which it may have to be judged differently though nothing was heard."""
    limits = (settings.fresh_sec, settings.heartbeat_timeout_active_sec, settings.heartbeat_timeout_inactive_sec)
    moments = [member.last_heard + limit for member in instance.members for limit in limits]
    moments.append(instance.last_registration_at + assemble_timeout_sec)
    return min((moment for moment in moments if moment >= now), default=now + LONGEST_SEC)


def is_no_news(instance: Instance, key: MemberKey, seen: Observation, now: float, settings: InstanceSettings) -> bool:
    """Whether `seen` only says once more what a member of an instance that serves said in time before."""
    if instance.status is not InstanceStatus.ACTIVE:
        return False
    member = instance.member(key)
    before = member.observation if member else None
    if member is None or before is None or member.unreachable_since is not None:
        return False
    was_late = now - before.received_at > settings.fresh_sec or before.received_at < instance.abandoned_at
    return not was_late and _as_before(seen, before) == before


def _as_before(seen: Observation, before: Observation) -> Observation:
    """Without what goes on by itself and only a run looks at."""
    return replace(
        seen,
        received_at=before.received_at,
        sequence=before.sequence,
        freeze_remaining_sec=before.freeze_remaining_sec,
        progress_age_sec=before.progress_age_sec,
    )
