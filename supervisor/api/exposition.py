"""The pod's metrics in Prometheus' text format.

Imported at the first scrape: a pod that nobody scrapes does not pay for prometheus-client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from supervisor.pod_metrics import OUTCOMES, Gauges, PodMetrics
from supervisor.shared import exposition as shared
from supervisor.shared.durations import Durations
from supervisor.unit.states import RunState
from supervisor.version import VERSION
from supervisor.wire import Step

Labels = tuple[str, ...]


def exposition(metrics: PodMetrics, gauges: Gauges, accept: str | None) -> tuple[bytes, str]:
    """The text and its content type."""
    return shared.exposition(_Once(metrics, gauges), accept)


class _Once(Collector):
    """The state of one moment."""

    def __init__(self, metrics: PodMetrics, gauges: Gauges) -> None:
        self._metrics = metrics
        self._gauges = gauges
        self._names, self._values = list(metrics.labels), list(metrics.labels.values())

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("podvisor_build", "The supervisor.", {**self._metrics.labels, "version": VERSION})
        yield from self._units()
        yield from self._engine()
        yield from self._controller()

    def _units(self) -> Iterator[Metric]:
        kept = self._metrics
        states = {(unit, state): float(state == now) for unit, now in self._gauges.units.items() for state in RunState}
        yield self._gauge(
            "podvisor_unit_state", "1 for the state that the unit is in.", ("unit", "state"), states.items()
        )
        by_cause = ("unit", "cause")
        yield self._counter(
            "podvisor_unit_restarts", "Restarts, by how the last life ended.", by_cause, kept.restarts.items()
        )
        yield self._counter("podvisor_unit_exits", "Ends of invocations, by cause.", by_cause, kept.exits.items())
        by_stream = ("unit", "stream")
        lost = "Output that could not be written in time."
        yield self._counter("podvisor_output_lost_bytes", lost, by_stream, kept.lost_bytes.items())
        suppressed = "Lines beyond LogRateLimitBurst."
        yield self._counter("podvisor_output_suppressed_lines", suppressed, by_stream, kept.suppressed_lines.items())

    def _engine(self) -> Iterator[Metric]:
        if self._gauges.freeze_sec is None or self._gauges.arbiter_count is None:
            return
        frozen = "What is left of the freeze; 0: not frozen."
        yield self._gauge("podvisor_freeze_seconds", frozen, (), [((), self._gauges.freeze_sec)])
        count = "Abnormal ticks in a row."
        yield self._gauge("podvisor_arbiter_count", count, (), [((), self._gauges.arbiter_count)])
        outcomes = {(outcome,): self._metrics.relaunches[outcome] for outcome in OUTCOMES}
        yield self._counter("podvisor_relaunch", "Relaunches of the engine here.", ("outcome",), outcomes.items())
        yield self._steps(self._metrics.steps)

    def _controller(self) -> Iterator[Metric]:
        if self._gauges.controller_up is None:
            return
        up = "1 while the controller answers."
        yield self._gauge("podvisor_controller_up", up, (), [((), float(self._gauges.controller_up))])
        if self._gauges.heartbeat_age_sec is not None:
            age = "Since the controller took a heartbeat or a registration."
            yield self._gauge("podvisor_heartbeat_seconds", age, (), [((), self._gauges.heartbeat_age_sec)])

    def _steps(self, steps: Mapping[Step, Durations]) -> Metric:
        words = "How long the steps of relaunches took."
        family = HistogramMetricFamily("podvisor_relaunch_step_seconds", words, labels=[*self._names, "step"])
        for step, durations in steps.items():
            family.add_metric([*self._values, step], durations.cumulative(), durations.sum)
        return family

    def _gauge(self, name: str, words: str, labels: Labels, values: Iterable[tuple[Labels, float]]) -> Metric:
        return self._filled(GaugeMetricFamily(name, words, labels=[*self._names, *labels]), values)

    def _counter(self, name: str, words: str, labels: Labels, values: Iterable[tuple[Labels, float]]) -> Metric:
        return self._filled(CounterMetricFamily(name, words, labels=[*self._names, *labels]), values)

    def _filled(
        self, family: GaugeMetricFamily | CounterMetricFamily, values: Iterable[tuple[Labels, float]]
    ) -> GaugeMetricFamily | CounterMetricFamily:
        for labels, value in values:
            family.add_metric([*self._values, *labels], value)
        return family
