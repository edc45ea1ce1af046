"""What Prometheus reads at /metrics. Streams are named only as far as their number is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

import ctta
from ctta.serving.stream import Point, Stream

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PER_STREAM = {  # by the name of a point's value
    "confidence": ("ctta_confidence_ratio", "Mean confidence of the last batch."),
    "source_confidence": ("ctta_source_confidence_ratio", "The same of the unadapted weights, where compared."),
    "threshold": ("ctta_threshold_ratio", "Confidence from which a sample is selected."),
    "selected": ("ctta_selected_ratio", "Share of selected samples of the last batch."),
    "disagreement": ("ctta_source_disagreement_ratio", "Share of labels that differ from the unadapted weights'."),
    "entropy": ("ctta_prediction_entropy_nats", "Mean entropy of the predictions of the last batch."),
    "guard": ("ctta_guard_state", "0 ok, 1 watched, 2 rolled back, 3 frozen."),
}


class Metrics:
    """Counters, histograms, and gauges that are read off the streams when somebody asks."""

    def __init__(self, model: str, method: str, labelled: int) -> None:
        self.model, self.method, self.labelled = model, method, labelled
        self.registry = CollectorRegistry()
        self.streams: Callable[[], Iterable[Stream]] = lambda: ()
        self.sizes: Callable[[], dict[str, float]] = dict
        self._requests = self._counter("ctta_requests_total", "Requests by status of HTTP.", "code")
        self._duration = self._histogram("ctta_request_duration_seconds", "Time to answer a request.", SECONDS)
        self._batch = self._histogram("ctta_batch_size", "Samples that were processed together.", SAMPLES)
        self._updates = self._counter("ctta_updates_total", "Batches that something was learned from.")
        self._update = self._histogram("ctta_update_duration_seconds", "Time of a batch in the adapter.", SECONDS)
        self._skipped = self._counter("ctta_skipped_updates_total", "Batches without learning.", "reason")
        self._drift = self._counter("ctta_drift_alarms_total", "Detected changes of domain.")
        self._rollbacks = self._counter("ctta_rollbacks_total", "Times that learning was taken back.", "to")
        self._failed = self._counter("ctta_failed_saves_total", "Streams that could not be saved.")
        self.registry.register(self)

    def request(self, code: int, seconds: float) -> None:
        self._requests.labels(self.model, str(code)).inc()
        self._duration.labels(self.model).observe(seconds)

    def processed(self, point: Point, reason: str) -> None:
        """Count a batch; `reason`: why nothing was learned from it."""
        self._batch.labels(self.model).observe(point["samples"] or 0)
        self._update.labels(self.model).observe(point["seconds"] or 0)
        if reason:
            self._skipped.labels(self.model, reason.replace(" ", "_")).inc()
        else:
            self._updates.labels(self.model).inc()
        self._drift.labels(self.model).inc(bool(point["boundary"]))

    def rolled_back(self, to: str) -> None:
        self._rollbacks.labels(self.model, to).inc()

    def save_failed(self) -> None:
        self._failed.labels(self.model).inc()

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Any]:
        """The gauges; the registry calls it."""
        info = GaugeMetricFamily("ctta_build_info", "Version.", labels=["model", "version", "method"])
        info.add_metric([self.model, ctta.__version__, self.method], 1)
        yield info
        for name, value in self.sizes().items():
            yield self._gauge(name, name.removeprefix("ctta_").replace("_", " ").capitalize() + ".", [([], value)])
        shown = list(self.streams())[: self.labelled]
        for key, (name, words) in PER_STREAM.items():
            found = [([stream.name], stream.history.last(key)) for stream in shown]
            yield self._gauge(name, words, [(labels, value) for labels, value in found if value is not None], "stream")

    def _gauge(self, name: str, words: str, values: list[tuple[list[str], float]], *labels: str) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, words, labels=["model", *labels])
        for given, value in values:
            family.add_metric([self.model, *given], value)
        return family

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        made = Counter(name, words, ["model", *labels], registry=self.registry)
        if not labels:
            made.labels(self.model)  # 0 until something happens
        return made

    def _histogram(self, name: str, words: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, words, ["model"], registry=self.registry, buckets=buckets)
