"""ARIMA and the regression on CPU and memory."""

import numpy as np
import pytest

from controlplane.policies.prediction.interface import Measured
from tests.policies.cluster import resolve


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


def test_with_d_2_and_no_coefficients_it_goes_on_along_the_line() -> None:
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
