"""The declarations of what is measured, and what messages say of them."""

import math
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from controlplane.protocol.base import Seconds, Value
from controlplane.protocol.codec import encode, from_agent, from_worker
from controlplane.protocol.measurements import OF_MACHINES, OF_WORKERS, declared, fitting, known_of, number, values_of
from controlplane.protocol.messages import AgentHeartbeat, IterationReport

REQUIRED = {
    "number": 1,
    "generation": 1,
    "iteration": 0,
    "position": 0,
    "samples": 8,
    "loss": 1.0,
    "compute_s": 0.4,
    "push_s": 0.2,
    "pull_s": 0.1,
    "waiting_s": 0.05,
    "coordination_s": 0.01,
}
WORKERS = [each.name for each in OF_WORKERS]
OPTIONAL = [each.name for each in OF_WORKERS if each.is_optional]


def test_a_declaration_has_all_that_is_known_of_a_number() -> None:
    class Told(Value, frozen=True, kw_only=True):
        name: str
        stalled_s: Annotated[Seconds, number("stalled", "s", chart="Stalls at all", fold="max")] | UnsetType = UNSET

    (found,) = declared(Told)
    assert (found.name, found.title, found.unit, found.fold) == ("stalled_s", "stalled", "s", "max")
    assert (found.is_optional, found.is_integer, found.least, found.most) == (True, False, 0.0, 1e9)
    assert found.figure == "stalls-at-all"


def test_a_number_without_bounds_cannot_be_declared() -> None:
    class Told(Value, frozen=True, kw_only=True):
        stalled_s: Annotated[float, number("stalled", "s")]

    with pytest.raises(TypeError, match=r"measurement stalled_s: .* expected a number with bounds"):
        declared(Told)


def test_no_two_charts_of_workers_have_one_name() -> None:
    charts = [each.figure for each in OF_WORKERS if each.chart]
    assert len(charts) == len(set(charts))


@given(st.sets(st.sampled_from(OPTIONAL)))
def test_what_an_older_worker_does_not_measure_is_absent_and_not_zero(known: set[str]) -> None:
    report = IterationReport(**REQUIRED, **fitting(OF_WORKERS, dict.fromkeys(known, 0.5)))
    sent = encode(report)
    assert {name for name in OPTIONAL if name in msgspec.msgpack.decode(sent)} == known
    heard = from_worker.decode(sent)
    assert heard == report
    assert set(known_of(heard, OPTIONAL)) == known
    assert [math.isnan(value) for value in values_of(heard, OPTIONAL)] == [name not in known for name in OPTIONAL]


@given(
    st.dictionaries(
        st.sampled_from([*WORKERS, "unheard_of"]), st.none() | st.floats() | st.integers(-(2**70), 2**70), max_size=9
    )
)
def test_whatever_a_driver_answers_the_report_is_taken(found: dict[str, float | None]) -> None:
    assert from_worker.decode(encode(IterationReport(**REQUIRED | fitting(OF_WORKERS, found))))
    beat = {"cpu": 0.5, "memory": 0.5} | fitting(OF_MACHINES, found)
    assert from_agent.decode(encode(AgentHeartbeat(**beat)))


def test_the_parts_of_an_iteration_sum_up_whether_loading_was_measured_or_not() -> None:
    alone, apart = IterationReport(**REQUIRED), IterationReport(**REQUIRED | {"compute_s": 0.3, "data_s": 0.1})
    for report in (alone, apart):
        assert report.processing_s == pytest.approx(0.4)
        assert report.busy_s == pytest.approx(0.7)
        assert report.iteration_s == pytest.approx(0.76)
