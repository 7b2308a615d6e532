import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.trainer.clock import IterationClock, Part

seconds = st.floats(0.0, 100.0)
laps = st.lists(st.tuples(st.sampled_from(Part), seconds, st.floats(-10.0, 200.0), st.booleans()), max_size=20)


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@given(laps)
def test_the_parts_always_sum_to_the_iteration(steps: list[tuple[Part, float, float, bool]]) -> None:
    time = Time()
    clock = IterationClock(time)
    for part, took, held, decision in steps:
        time.now += took
        if decision:
            clock.lap_decision(held)
        elif part is Part.COMPUTE:
            clock.lap_computing(held)
        else:
            clock.lap(part, held_s=held)
    parts = clock.finish()
    assert sum(parts.values()) == pytest.approx(time.now - 1000.0)
    assert all(spent >= 0.0 for spent in parts.values())


def test_what_a_server_held_back_is_waiting() -> None:
    time = Time()
    clock = IterationClock(time)
    time.now += 5.0
    clock.lap(Part.PULL, held_s=3.5)
    assert clock.finish() == {
        "data_s": 0.0,
        "compute_s": 0.0,
        "push_s": 0.0,
        "pull_s": 1.5,
        "waiting_s": 3.5,
        "coordination_s": 0.0,
    }


@pytest.mark.parametrize(("loading_s", "data_s"), [(0.0, 0.0), (3.0, 3.0), (7.0, 5.0), (-1.0, 0.0)])
def test_waiting_for_batches_is_data_and_the_rest_of_a_step_is_compute(loading_s: float, data_s: float) -> None:
    time = Time()
    clock = IterationClock(time)
    time.now += 5.0
    clock.lap_computing(loading_s)
    parts = clock.finish()
    assert (parts["data_s"], parts["compute_s"]) == (data_s, 5.0 - data_s)


def test_coordination_is_the_time_from_the_decision_to_its_arrival() -> None:
    time = Time()
    clock = IterationClock(time)
    time.now += 2.0
    clock.lap(Part.PULL)
    time.now += 3.0
    clock.lap_decision(held_s=4.0)  # decided 4 s after the report, 2 s after this worker began to wait for it
    parts = clock.finish()
    assert (parts["pull_s"], parts["waiting_s"], parts["coordination_s"]) == (2.0, 2.0, 1.0)


def test_a_decision_that_was_made_before_it_was_awaited_is_all_coordination() -> None:
    time = Time()
    clock = IterationClock(time)
    time.now += 2.0
    clock.lap(Part.WAITING)
    time.now += 0.25
    clock.lap_decision(held_s=1.0)
    assert clock.finish()["coordination_s"] == 0.25


def test_the_next_iteration_begins_where_the_last_lap_ended() -> None:
    time = Time()
    clock = IterationClock(time)
    time.now += 1.0
    clock.lap(Part.PUSH)
    time.now += 0.5  # making the report
    clock.finish()
    time.now += 0.25
    clock.lap(Part.WAITING)
    assert sum(clock.finish().values()) == 0.75
