from controlplane.core.choices import Observation
from controlplane.policies.prediction.ema import EmaState
from controlplane.policies.prediction.interface import Measured, measure
from controlplane.policies.prediction.memoryless import MemorylessState
from tests.policies.cluster import resolve


def test_ema_begins_at_the_first_speed_and_moves_a_fifth_of_the_way() -> None:
    ema = resolve("prediction", "ema")
    first = ema.observe({0: Measured(speed=100.0)}, ema.start())
    second = ema.observe({0: Measured(speed=200.0), 1: Measured(speed=50.0)}, first)
    assert (first, second) == (EmaState(speeds={0: 100.0}), EmaState(speeds={0: 120.0, 1: 50.0}))
    assert ema.predict(second) == {0: 120.0, 1: 50.0}


def test_the_weight_of_the_latest_observation_can_be_set() -> None:
    ema = resolve("prediction", "ema", alpha=0.5)
    assert ema.observe({0: Measured(speed=200.0)}, EmaState(speeds={0: 100.0})) == EmaState(speeds={0: 150.0})


def test_memoryless_predicts_the_last_speed() -> None:
    memoryless = resolve("prediction", "memoryless")
    state = memoryless.observe({0: Measured(speed=200.0)}, MemorylessState(speeds={0: 100.0, 1: 50.0}))
    assert memoryless.predict(state) == {0: 200.0, 1: 50.0}


def test_observing_leaves_the_old_state_as_it_was() -> None:
    for name in ("ema", "memoryless"):
        predictor = resolve("prediction", name)
        before = predictor.observe({0: Measured(speed=100.0)}, predictor.start())
        predictor.observe({0: Measured(speed=900.0)}, before)
        assert predictor.predict(before) == {0: 100.0}


def test_the_state_of_a_worker_that_left_the_roster_is_dropped() -> None:
    for name in ("ema", "memoryless"):
        predictor = resolve("prediction", name)
        state = predictor.observe({0: Measured(speed=100.0), 1: Measured(speed=50.0)}, predictor.start())
        assert predictor.predict(predictor.keep([1, 2], state)) == {1: 50.0}


def test_a_measurement_carries_what_the_coming_iteration_starts_with() -> None:
    seen = Observation(
        rank=3, iteration=9, samples=60, compute_s=0.1, communication_s=0.05, waiting_s=2.0, cpu=0.5, memory=0.25
    )
    assert measure([seen]) == {3: Measured(speed=60 / (0.1 + 0.05), cpu=0.5, memory=0.25)}
