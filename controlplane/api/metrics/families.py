"""Collects the metric families of a scrape: samples in any order, each family emitted once."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from controlplane.protocol.measurements import Measurement
from controlplane.telemetry.tallies import WITHOUT_BOUND

Labels = dict[str, str]

UNITS: Final = {"s": "_seconds", "B": "_bytes", "B/s": "_bytes_per_second", "W": "_watts", "°C": "_celsius"}


class Families:
    """Metric families by name, in the order of first use."""

    def __init__(self) -> None:
        self._found: dict[str, Metric] = {}

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._found.values())

    def gauge(self, name: str, text: str, value: float | None, labels: Labels | None = None) -> None:
        """Add a gauge, unless the value is unknown."""
        if value is not None:
            self._add(GaugeMetricFamily, name, text, labels or {}, value)

    def counter(self, name: str, text: str, value: float, labels: Labels | None = None) -> None:
        """Add a counter; its name gets the suffix ``_total``."""
        self._add(CounterMetricFamily, name, text, labels or {}, value)

    def histogram(
        self, name: str, text: str, buckets: Mapping[int, tuple[int, float]], bounds_ms: Iterable[int], labels: Labels
    ) -> None:
        """Add a histogram of seconds: count and sum of each bucket, by its upper bound in milliseconds."""
        family = self._found.get(name)
        if family is None:
            family = self._found[name] = HistogramMetricFamily(name, text, labels=tuple(labels))
        assert isinstance(family, HistogramMetricFamily)
        below, rows = 0, []
        for bound in bounds_ms:
            below += buckets.get(bound, (0, 0.0))[0]
            rows.append((_bound(bound), float(below)))
        family.add_metric(tuple(labels.values()), rows, sum(seconds for _, seconds in buckets.values()))

    def _add(
        self,
        kind: type[GaugeMetricFamily | CounterMetricFamily],
        name: str,
        text: str,
        labels: Labels,
        value: float,
    ) -> None:
        family = self._found.get(name)
        if family is None:
            family = self._found[name] = kind(name, text, labels=tuple(labels))
        assert isinstance(family, kind)
        family.add_metric(tuple(labels.values()), value)


def measured_name(subject: Literal["worker", "machine"], measurement: Measurement) -> str:
    """The Prometheus name of a declared measurement: with its unit as a suffix."""
    unit = UNITS.get(measurement.unit, "_ratio" if measurement.most == 1.0 else "")
    return f"paceline_{subject}_{measurement.name}{unit}"


def _bound(upto_ms: int) -> str:
    return "+Inf" if upto_ms == WITHOUT_BOUND else f"{upto_ms / 1000:g}"
