"""How what is told over and over becomes one Event with a count, as Kubernetes' own are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from controller.model.kubernetes.pods import Owner, Pod
from controller.model.kubernetes.telling import News, Reason

SERIES_SEC = 600.0
"""After so long a silence it is told anew."""
GAP_SEC = 10.0
"""The same Event is written as often at most; what comes in between is counted."""
LONGEST_MESSAGE = 1024
"""The API takes no longer one."""


@dataclass(frozen=True, slots=True, order=True)
class Involved:
    """What an Event is about: `kubectl describe` of it shows the Event."""

    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str


SeriesKey = tuple[Involved, Reason]


@dataclass(frozen=True, slots=True)
class Series:
    """One Event of the API, as it is to stand there. Times are monotonic."""

    involved: Involved
    reason: Reason
    is_warning: bool
    message: str
    """The last one's."""
    count: int
    first_at: float
    last_at: float
    name: str
    """The Event's own."""
    written_at: float | None = None
    """None: the API does not have it yet."""

    @property
    def due_at(self) -> float:
        return self.last_at if self.written_at is None else max(self.last_at, self.written_at + GAP_SEC)


def told(known: Series | None, involved: Involved, news: News, now: float, new_name: str) -> Series:
    """The series with one more; `new_name` is for the Event of a new one."""
    message = news.message[:LONGEST_MESSAGE]
    if known is None or is_over(known, now):
        return Series(involved, news.reason, news.is_warning, message, 1, now, now, new_name)
    return replace(known, message=message, is_warning=news.is_warning, count=known.count + 1, last_at=now)


def written(series: Series, as_it_was: Series, now: float) -> Series:
    """The API has it `as_it_was`; `series` is what has become of it meanwhile, or another of the same key."""
    return replace(series, written_at=now) if series.name == as_it_was.name else series


def is_over(series: Series, now: float) -> bool:
    return now - series.last_at > SERIES_SEC


def involved(pods: tuple[Pod, ...]) -> tuple[Involved, ...]:
    """The pods, then who owns them, each once."""
    owners = {pod.owner: _owner(pod.ref.namespace, pod.owner) for pod in pods if pod.owner}
    return (*(_pod(pod) for pod in pods), *owners.values())


def _pod(pod: Pod) -> Involved:
    return Involved(pod.ref.namespace, "v1", "Pod", pod.ref.name, pod.ref.uid)


def _owner(namespace: str, owner: Owner) -> Involved:
    return Involved(namespace, owner.api_version, owner.kind, owner.name, owner.uid)
