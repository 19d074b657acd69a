"""Whether the files of all pods say the same, so that a gang can be started with them (design 8, Rollouts)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.model.relaunch.exchange import Accepted, Answer, Refused, Unreachable


@dataclass(frozen=True, slots=True)
class Agreed:
    config_digest: str


@dataclass(frozen=True, slots=True)
class Differing:
    reason: str
    """Who says what, in words."""


def agreed(told: Mapping[str, Answer]) -> Agreed | Differing:
    """`told`: what each member, by its address, has answered to `reload`."""
    if wrong := [f"{address}: {words}" for address, answer in told.items() if (words := _why_not(answer))]:
        return Differing("; ".join(sorted(wrong)))
    by_digest: dict[str, list[str]] = {}
    for address, answer in told.items():
        by_digest.setdefault(_digest(answer) or "", []).append(address)
    if len(by_digest) == 1:
        return Agreed(*by_digest)
    who = ", ".join(f"{' and '.join(sorted(addresses))} {digest}" for digest, addresses in sorted(by_digest.items()))
    return Differing(f"the files have not come everywhere yet: {who}")


def _why_not(answer: Answer) -> str:
    if isinstance(answer, Unreachable | Refused):
        return answer.message
    return "" if _digest(answer) else "it does not say which configuration it would have"


def _digest(answer: Answer) -> str | None:
    return answer.config_digest if isinstance(answer, Accepted) else None
