"""The fleet's metrics as Prometheus reads them. Names and labels are an interface (design 8): no pid, no epoch.

What is measured is copied on the loop and written in a thread: for thousands of instances that takes longer than a
heartbeat should wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.entry import Entry
from controller.journal import Journal
from controller.kubernetes.trouble import Trouble
from controller.model.instance import InstanceStatus
from controller.registry import Registry
from supervisor.version import VERSION

INSTANCE = ("namespace", "job_name")


@dataclass(frozen=True, slots=True)
class InstanceGauges:
    namespace: str
    job_name: str
    status: InstanceStatus
    held: bool
    budget_remaining: int
    heartbeat_age_sec: float
    """Of the member that was not heard for longest."""


@dataclass(frozen=True, slots=True)
class StepGauges:
    namespace: str
    step: str
    buckets: tuple[tuple[str, float], ...]
    sum: float


@dataclass(frozen=True, slots=True)
class ApiCounts:
    """Of the Kubernetes API, where its client is switched on; nothing of any namespace."""

    requests: Mapping[tuple[str, str], int]
    """By what was written or read, and what came of it."""
    dropped: Mapping[str, int]
    deleted: int


@dataclass(frozen=True, slots=True)
class Sources:
    """What is measured of a controller that leads."""

    registry: Registry
    journal: Journal
    kubernetes: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of a controller that leads."""

    instances: tuple[InstanceGauges, ...]
    outcomes: Mapping[tuple[str, str, str], int]
    """By namespace, job and outcome."""
    steps: tuple[StepGauges, ...]
    journal_writable: bool
    kubernetes: ApiCounts | None = None


def snapshot(sources: Sources, may_see: Callable[[str], bool], now: float) -> Snapshot:
    registry, api = sources.registry, sources.kubernetes
    runs = registry.run_metrics
    return Snapshot(
        instances=tuple(
            _instance(registry, entry, now) for entry in registry.entries() if may_see(entry.instance.key.namespace)
        ),
        outcomes={
            (key.namespace, key.job_name, outcome): count
            for key, counts in runs.outcomes.items()
            if may_see(key.namespace)
            for outcome, count in counts.items()
        },
        steps=tuple(
            StepGauges(namespace, step, tuple(durations.cumulative()), durations.sum)
            for (namespace, step), durations in runs.steps.items()
            if may_see(namespace)
        ),
        journal_writable=not sources.journal.is_broken,
        kubernetes=_api_counts(api) if api else None,
    )


def _api_counts(api: Trouble) -> ApiCounts:
    requests = {(str(what), str(result)): count for (what, result), count in api.requests.items()}
    return ApiCounts(requests, {str(what): count for what, count in api.dropped.items()}, api.deleted)


def _instance(registry: Registry, entry: Entry, now: float) -> InstanceGauges:
    instance = entry.instance
    most = registry.policy.relaunch.engine_relaunch_max_attempts
    return InstanceGauges(
        namespace=instance.key.namespace,
        job_name=instance.key.job_name,
        status=instance.status,
        held=bool(instance.held),
        budget_remaining=max(0, most - registry.budgets.of(instance).runs),
        heartbeat_age_sec=max((now - member.last_heard for member in instance.members), default=0.0),
    )


class FleetCollector(Collector):
    def __init__(self, seen: Snapshot | None) -> None:
        """None: this controller stands by."""
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("podvisor_build", "The controller.", {"version": VERSION})
        yield GaugeMetricFamily("podvisor_leader", "1 if this controller leads.", float(self._seen is not None))
        if self._seen is not None:
            writable = "0 while nothing is commanded, because it cannot be written down."
            yield GaugeMetricFamily("podvisor_journal_writable", writable, float(self._seen.journal_writable))
            yield from _instances(self._seen.instances)
            yield from _runs(self._seen)
            if self._seen.kubernetes is not None:
                yield from _kubernetes(self._seen.kubernetes)


def _instances(instances: tuple[InstanceGauges, ...]) -> Iterator[Metric]:
    status = GaugeMetricFamily("podvisor_instance_status", "1 for the status of it.", labels=(*INSTANCE, "status"))
    held = GaugeMetricFamily("podvisor_instance_held", "1 if an operator has to release it.", labels=INSTANCE)
    budget = GaugeMetricFamily("podvisor_budget_remaining", "Relaunches until its containers restart.", labels=INSTANCE)
    heard = GaugeMetricFamily(
        "podvisor_heartbeat_seconds",
        "Since the last heartbeat of the member that was silent for longest.",
        labels=INSTANCE,
    )
    for one in instances:
        labels = (one.namespace, one.job_name)
        for each in InstanceStatus:
            status.add_metric((*labels, each), float(each is one.status))
        held.add_metric(labels, float(one.held))
        budget.add_metric(labels, one.budget_remaining)
        heard.add_metric(labels, one.heartbeat_age_sec)
    yield from (status, held, budget, heard)


def _runs(seen: Snapshot) -> Iterator[Metric]:
    relaunches = CounterMetricFamily(
        "podvisor_relaunch", "Runs that are closed, by how they ended.", labels=(*INSTANCE, "outcome")
    )
    for labels, count in seen.outcomes.items():
        relaunches.add_metric(labels, count)
    steps = HistogramMetricFamily(
        "podvisor_relaunch_step_seconds", "How long the steps of runs took.", labels=("namespace", "step")
    )
    for one in seen.steps:
        steps.add_metric((one.namespace, one.step), list(one.buckets), one.sum)
    yield from (relaunches, steps)


def _kubernetes(api: ApiCounts) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "podvisor_kubernetes_requests", "To the Kubernetes API, by what came of them.", labels=("what", "result")
    )
    for labels, count in api.requests.items():
        requests.add_metric(labels, count)
    dropped = CounterMetricFamily(
        "podvisor_kubernetes_dropped", "Never written: the API was away for too long, or said no.", labels=("what",)
    )
    for what, count in api.dropped.items():
        dropped.add_metric((what,), count)
    yield from (requests, dropped)
    yield CounterMetricFamily("podvisor_kubernetes_pods_deleted", "Their containers did not restart.", api.deleted)
