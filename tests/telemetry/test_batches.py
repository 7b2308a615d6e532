"""Reports of a batch as columns: what is stored is what was received, by any release's measurements."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from controlplane.core.events import WorkerMessageReceived
from controlplane.protocol.measurements import OF_WORKERS
from controlplane.protocol.messages import IterationReport
from controlplane.telemetry.batches import (
    Received,
    ReportColumns,
    columns_of,
    decoded_batch,
    empty_reports,
    encoded_batch,
    joined,
)
from controlplane.telemetry.numbers import next_messages
from tests.support.examples import examples

TIMES = dict.fromkeys(("compute_s", "push_s", "pull_s", "waiting_s", "coordination_s"), 0.125)
LATER = [each.name for each in OF_WORKERS if each.is_optional]


def received(rank: int, number: int, *, instance: str = "a", **measured: Any) -> Received:
    values = {"samples": 8, "loss": 0.5, "position": 2**62, "generation": 1} | TIMES | measured
    report = IterationReport(number=number, iteration=number - 1, **values)
    return Received(rank=rank, instance=f"w{rank}.{instance}", at_ms=1_772_000_000_000 + number, report=report)


def rows(reports: ReportColumns) -> list[dict[str, Any]]:
    """One dictionary per report, without what is not known."""
    found = []
    for place in range(len(reports)):
        values = {name: column[place].item() for name, column in reports.columns.items()}
        known = {name: value for name, value in values.items() if value == value}
        found.append(known | {"instance": reports.instances[values["instance"]]})
    return found


def as_row(each: Received) -> dict[str, Any]:
    values = {name: getattr(each.report, name) for name in ("iteration", "generation", "position", "overran")}
    measured = {one.name: getattr(each.report, one.name) for one in OF_WORKERS}
    known = {name: value for name, value in measured.items() if value is not UNSET and math.isfinite(value)}
    return values | known | {"rank": each.rank, "instance": each.instance, "at_ms": each.at_ms}


measured = st.dictionaries(st.sampled_from(LATER), st.just(0.25))
arrivals = st.lists(
    st.builds(
        lambda rank, number, instance, more: received(rank, number, instance=instance, **more),
        st.integers(0, 3),
        st.integers(1, 9),
        st.sampled_from("ab"),
        measured,
    ),
    max_size=8,
)


@settings(max_examples=examples(100))
@given(st.lists(arrivals, max_size=4))
def test_what_is_read_is_what_was_received(batches: list[list[Received]]) -> None:
    stored = [encoded_batch(columns_of(batch)) for batch in batches]
    found = joined([decoded_batch(data) for data in stored])
    assert rows(found) == [as_row(each) for batch in batches for each in batch]


def test_only_the_columns_that_are_requested_are_read() -> None:
    data = encoded_batch(columns_of([received(0, 1, gpu_power=200.0)]))
    assert set(decoded_batch(data, ("loss",)).columns) == {"rank", "instance", "iteration", "loss"}
    assert np.isnan(decoded_batch(data, ("gpu_memory",)).column("gpu_memory")).tolist() == [True]


def test_a_batch_of_a_later_format_or_cut_off_is_refused() -> None:
    data = encoded_batch(columns_of([received(0, 1)]))
    for bad in (data[:-3], data.replace(b"reports-1", b"reports-2"), b""):
        with pytest.raises(
            ValueError, match=r"a stored batch of reports, \d+ bytes: .*expected the format `reports-1`"
        ):
            decoded_batch(bad)


def test_no_batches_are_no_reports() -> None:
    assert (len(joined([])), rows(empty_reports())) == (0, [])


deliveries = st.lists(st.tuples(st.integers(-3, 2), st.integers(1, 5)), max_size=12)


@settings(max_examples=examples(200))
@given(deliveries)
def test_however_messages_are_resent_each_counts_once_and_none_is_left_out(runs: list[tuple[int, int]]) -> None:
    """Runs of numbers that begin before, at or behind the next one that is due."""
    known: dict[str, int] = {}
    counted: list[int] = []
    for begins, count in runs:
        first = max(1, known.get("w0.a", 0) + 1 + begins)
        reports = [received(0, number).report for number in range(first, first + count)]
        events = [WorkerMessageReceived(rank=0, instance="w0.a", message=report) for report in reports]
        are_next, risen = next_messages(known, events)
        counted += [report.number for report, is_next in zip(reports, are_next, strict=True) if is_next]
        known |= risen
        assert known.get("w0.a", 0) == max([*counted, 0])
    assert counted == list(range(1, len(counted) + 1))
