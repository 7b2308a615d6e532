"""ARIMA and the regression on CPU and memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.offline.prediction import run
from benchmarks.offline.speed_series import SETTINGS, generate
from controlplane.policies.catalogue.prediction import ArimaParameters
from controlplane.policies.prediction.arima import Arima
from controlplane.policies.prediction.interface import Measured
from controlplane.policies.prediction.stationary import stationary
from tests.policies.cluster import resolve
from tests.support.examples import examples


def walk(predictor, speeds, cpu=None):
    """Forecasts of every speed but the first, and the state after all."""
    cpu = np.zeros(len(speeds) + 1) if cpu is None else cpu
    state, forecasts = predictor.start(), []
    for k, speed in enumerate(speeds):
        if k:
            forecasts.append(predictor.predict(state)[0])
        state = predictor.observe({0: Measured(speed=float(speed), cpu=float(cpu[k + 1]), memory=0.5)}, state)
    return np.array(forecasts), state


def test_with_d_1_and_no_coefficients_arima_predicts_the_last_speed() -> None:
    forecasts, _ = walk(resolve("prediction", "arima", p=0, d=1, q=0), [5.0, 7.0, 6.0])
    assert forecasts.tolist() == [5.0, 7.0]


def test_with_d_2_and_no_coefficients_it_continues_along_the_line() -> None:
    forecasts, _ = walk(resolve("prediction", "arima", p=0, d=2, q=0), [10.0, 11.0, 12.0, 13.0])
    assert forecasts[1:].tolist() == [12.0, 13.0]


def test_it_finds_the_coefficients_of_a_series_that_has_them() -> None:
    chance = np.random.default_rng(3)
    speeds, noise = [100.0, 100.0], chance.normal(0.0, 1.0, 2000)
    for k in range(2000):
        speeds.append(100.0 + 0.6 * (speeds[-1] - 100.0) - 0.3 * (speeds[-2] - 100.0) + noise[k])
    centred = np.array(speeds)
    forecasts, _ = walk(resolve("prediction", "arima", p=2, d=0, q=0), centred - 70.0)
    error = np.sqrt(np.mean((forecasts[1000:] - (centred[1:] - 70.0)[1000:]) ** 2))
    assert error < 1.6
    memoryless, _ = walk(resolve("prediction", "memoryless"), centred)
    assert error < 1.3 * np.sqrt(np.mean((memoryless[1000:] - centred[1:][1000:]) ** 2))


def test_a_moving_average_part_damps_what_differencing_stirs_up() -> None:
    chance = np.random.default_rng(4)
    speeds = 100.0 + chance.normal(0.0, 2.0, 1500)
    errors = {}
    for q in (0, 1):
        forecasts, _ = walk(resolve("prediction", "arima", p=0, d=1, q=q), speeds)
        errors[q] = np.sqrt(np.mean((forecasts[500:] - speeds[501:]) ** 2))
    assert errors[1] < 0.85 * errors[0]


def test_a_forecast_is_never_further_than_twice_the_last_speed() -> None:
    forecasts, _ = walk(resolve("prediction", "arima"), [10.0, 100.0, 1000.0, 10.0, 1000.0, 10.0])
    last = np.array([10.0, 100.0, 1000.0, 10.0, 1000.0])
    assert (forecasts <= 2 * last).all()
    assert (forecasts >= last / 2).all()


def test_regression_follows_a_change_that_cpu_explains_at_once() -> None:
    cpu = np.repeat(np.tile([0.1, 0.6], 20), 5)
    speeds = 100.0 * (1 - cpu)
    forecasts, _ = walk(resolve("prediction", "regression"), speeds, np.append(cpu, 0.1))
    assert np.abs(forecasts[100:] / speeds[101:] - 1).max() < 0.03
    averages, _ = walk(resolve("prediction", "ema"), speeds)
    assert np.abs(averages[100:] / speeds[101:] - 1).max() > 0.4


def test_what_one_worker_shows_about_cpu_is_known_about_a_new_one() -> None:
    regression = resolve("prediction", "regression")
    state = regression.start()
    cpu = np.repeat(np.tile([0.1, 0.6], 20), 5)
    for k in range(len(cpu) - 1):
        state = regression.observe({0: Measured(speed=100.0 * (1 - cpu[k]), cpu=cpu[k + 1], memory=0.5)}, state)
    state = regression.observe({0: Measured(speed=40.0, cpu=0.1, memory=0.5), 9: Measured(speed=9.0, cpu=0.1)}, state)
    state = regression.observe({9: Measured(speed=9.0, cpu=0.6)}, state)
    assert regression.predict(state)[9] == pytest.approx(4.0, rel=0.1)


def test_a_spike_moves_the_level_less_than_a_change_that_stays() -> None:
    regression = resolve("prediction", "regression")
    _, state = walk(regression, 100.0 + np.random.default_rng(5).normal(0, 2, 100))
    once = regression.observe({0: Measured(speed=50.0, memory=0.5)}, state)
    twice = regression.observe({0: Measured(speed=50.0, memory=0.5)}, once)
    before, after, lasting = (regression.predict(one)[0] for one in (state, once, twice))
    assert before - after < 7
    assert after - lasting > 8


def cluster_b(name: str, seed: int) -> float:
    """RMSE on the benchmark's series."""
    return run(name, generate(SETTINGS[0], iterations=1500, seed=seed)).rmse


@pytest.mark.parametrize("seed", range(10))
def test_arima_beats_memoryless_on_machines_like_cluster_b(seed: int) -> None:
    assert cluster_b("arima", seed) < 0.98 * cluster_b("memoryless", seed)


orders = st.builds(ArimaParameters, p=st.integers(0, 5), d=st.integers(0, 3), q=st.integers(0, 5))
any_speeds = st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=60)


@settings(max_examples=examples(60))
@given(parameters=orders, speeds=any_speeds)
def test_the_coefficients_of_arima_are_always_stationary_and_invertible(parameters, speeds) -> None:
    predictor = Arima(parameters=parameters)
    state = predictor.start()
    for speed in speeds:
        state = predictor.observe({0: Measured(speed=speed)}, state)
        (of,) = predictor._split(state.sheet.rows(predictor._width))["coefficients"]
        for polynomial in (-of[: parameters.p], of[parameters.p :]):
            roots = np.roots([1.0, *polynomial])
            assert np.abs(roots).max(initial=0.0) < 1.0 + 1e-9


@given(
    coefficients=st.lists(st.floats(-9.0, 9.0), min_size=1, max_size=6),
)
def test_stationary_coefficients_are_left_alone_and_others_are_brought_in(coefficients) -> None:
    given_ = np.array([coefficients])
    found = stationary(given_, 0.98)
    largest = np.abs(np.roots([1.0, *-found[0]])).max(initial=0.0)
    assert largest < 1.0
    assert stationary(found, 0.98) == pytest.approx(found, abs=1e-6)


def test_a_series_without_differences_is_forecast_around_its_mean() -> None:
    forecasts, _ = walk(resolve("prediction", "arima", p=2, d=0, q=1), [50.0] * 30)
    assert forecasts == pytest.approx([50.0] * 29)
