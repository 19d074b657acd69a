"""Whether the containers of one more instance may be restarted, given how many others just were (design 4, Fleet
safety): a cause that they share (storage, a driver, a switch, a mistake of ours) is likelier than so many faults.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from controller.model.member import InstanceKey
from controller.model.settings import FleetSettings

NEVER_BELOW = 2
"""So many instances may always fail within one window: of a small fleet a fraction would be less than one."""
_NUMBER = re.compile(r"\d[\d.:]*")


@dataclass(frozen=True, slots=True)
class PhaseTwo:
    """The containers of an instance were restarted."""

    instance: InstanceKey
    at: float
    why: str


Recent = tuple[PhaseTwo, ...]
"""The last phase 2 of each instance, the newest last."""


def noted(recent: Recent, new: PhaseTwo, settings: FleetSettings) -> Recent:
    """With the new one, without those that are too old to count."""
    begins = new.at - settings.window_sec
    return (*(each for each in recent if each.instance != new.instance and each.at >= begins), new)


def forgotten(recent: Recent, instance: InstanceKey) -> Recent:
    return tuple(each for each in recent if each.instance != instance)


def why_not(recent: Recent, instance: InstanceKey, instances: int, now: float, settings: FleetSettings) -> str:
    """Why `instance`, one of so many that live, may not enter phase 2 now; empty: it may.

    One that enters it again is judged by its own budget: it says nothing new about the fleet.
    """
    begins = now - settings.window_sec
    counted = [each for each in recent if each.at >= begins]
    if any(each.instance == instance for each in counted):
        return ""
    if len(counted) + 1 <= max(NEVER_BELOW, settings.max_phase2_fraction * instances):
        return ""
    return (
        f"the containers of {len(counted)} of {instances} instances restarted within {settings.window_sec:g} s, which"
        f" is all that max_phase2_fraction allows: a shared cause is likely; {_most_often(counted)}"
    )


def _most_often(counted: Sequence[PhaseTwo]) -> str:
    """Reasons that differ in numbers and addresses only are one."""
    shapes = Counter(_NUMBER.sub("N", each.why) for each in counted)
    shape, count = shapes.most_common(1)[0]
    example = next(each.why for each in reversed(counted) if _NUMBER.sub("N", each.why) == shape)
    return f"{count} of them say: {example}"
