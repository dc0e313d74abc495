"""What Prometheus reads at /metrics."""

from collections.abc import Callable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lcspec.batching import Metrics, Timings

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2)

_COUNTERS = {
    "refused": ("requests_refused", "Texts that found the queue full."),
    "prompt_tokens": ("prompt_tokens", "Tokens of all prompts."),
    "cached_tokens": ("prompt_tokens_cached", "Tokens of prompts that needed no evaluation."),
    "cache_hits": ("cache_hits", "Prompts of which some was in the cache."),
    "tokens": ("tokens", "Tokens that were written."),
    "passes": ("passes", "Evaluations of the target."),
    "evaluated": ("tokens_evaluated", "Tokens in these evaluations."),
    "preempted": ("preempted", "Times that a text gave its cells to an older one, to go on later."),
    "crashes": ("crashes", "Times that the engine failed."),
}

_GAUGES = {
    "queued": ("requests_queued", "Texts that wait."),
    "active": ("requests_active", "Texts that are being written."),
    "max_sequences": ("requests_active_most", "Texts that may be written together."),
    "sequences": ("sequences", "Sequences in the cache of texts that are being written."),
    "kept": ("texts_kept", "Texts that ended and are kept, so that others may go on from them."),
    "cells": ("cells", "Tokens in the cache."),
    "max_cells": ("cells_most", "Tokens that the cache holds."),
    "is_up": ("up", "Whether the engine takes requests."),
}


class ServerMetrics:
    """Counts what the server does, and asks the engine what it did.

    Args:
        of_engine: returns the engine's figures; None as long as there is no engine.
    """

    def __init__(self, of_engine: Callable[[], Metrics | None]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "lcspec_http_requests", "Requests by path and status.", ("path", "status"), registry=self._registry
        )
        self._first_token = Histogram(
            "lcspec_first_token_seconds",
            "From the arrival of a text's request to its first token.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._registry.register(_OfEngine(of_engine))

    def answered(self, path: str, status: int) -> None:
        """Count a request; `path` is one of few."""
        self._requests.labels(path, status).inc()

    def finished(self, timings: Timings) -> None:
        """Count what a text took."""
        if timings.first_token_seconds is not None:
            self._first_token.observe(timings.first_token_seconds)

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self._registry)


class _OfEngine(Collector):
    def __init__(self, of_engine: Callable[[], Metrics | None]) -> None:
        self._of_engine = of_engine

    def collect(self) -> Iterator[Metric]:
        """Yield the engine's figures."""
        metrics = self._of_engine()
        if metrics is None:
            yield GaugeMetricFamily("lcspec_up", "Whether the engine takes requests.", 0)
            return
        for name, (title, about) in _COUNTERS.items():
            yield CounterMetricFamily(f"lcspec_{title}", about, getattr(metrics, name))
        for name, (title, about) in _GAUGES.items():
            yield GaugeMetricFamily(f"lcspec_{title}", about, getattr(metrics, name))
        requests = CounterMetricFamily("lcspec_requests", "Texts that ended, by how.", labels=["outcome"])
        for outcome, n in metrics.requests.items():
            requests.add_metric([outcome], n)
        yield requests
        yield from _of_drafters(metrics)


def _of_drafters(metrics: Metrics) -> Iterator[Metric]:
    drafted = CounterMetricFamily("lcspec_draft_tokens", "Draft tokens that were verified.", labels=["drafter"])
    accepted = CounterMetricFamily("lcspec_draft_tokens_accepted", "Those that were right.", labels=["drafter"])
    rate = GaugeMetricFamily("lcspec_acceptance_rate", "Accepted over verified draft tokens.", labels=["drafter"])
    for name, share in metrics.drafters.items():
        drafted.add_metric([name], share.drafted)
        accepted.add_metric([name], share.accepted)
        rate.add_metric([name], share.accepted / share.drafted if share.drafted else 0.0)
    yield from (drafted, accepted, rate)
