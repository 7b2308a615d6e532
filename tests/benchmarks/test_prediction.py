"""What predictors make of a series on which the CPU decides: NARX follows it, an average cannot."""

from dataclasses import replace
from functools import cache

import numpy as np

from benchmarks.offline.prediction import SETTLED, forecasts
from benchmarks.offline.speed_series import SETTINGS, Series, generate

DECIDES = replace(SETTINGS[0], name="decides", arrivals=0.036, stay=20.0, noise=0.02, spikes=0.0)
"""Tasks come and go, all of them visible; hardly any noise, and no disturbance that no reading shows."""


@cache
def series() -> Series:
    return generate(DECIDES, iterations=1000, seed=0, machines=8)


@cache
def rmse(name: str, **parameters: int) -> float:
    errors = (forecasts(name, series(), parameters) - series().speed)[SETTLED:]
    return float(np.mean(np.sqrt(np.mean(errors**2, axis=0))))


def test_narx_errs_by_half_of_what_an_average_does_where_cpu_decides() -> None:
    assert rmse("narx") < 0.5 * rmse("ema")


def test_narx_that_is_trained_every_100_iterations_is_no_worse_than_every_500() -> None:
    assert rmse("narx", retrain_every=100) < 1.05 * rmse("narx", retrain_every=500)
