import numpy as np
import pytest

from benchmarks.offline.speed_series import SETTINGS, Setting, generate


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_seed_gives_one_series_and_another_seed_another(setting: Setting) -> None:
    first, again, other = (generate(setting, iterations=50, seed=seed) for seed in (3, 3, 4))
    assert first.speed.tobytes() == again.speed.tobytes()
    assert not np.array_equal(first.speed, other.speed)
    assert first.speed.shape == first.cpu.shape == first.memory.shape == (50, 32)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_speeds_are_positive_and_readings_are_fractions(setting: Setting) -> None:
    series = generate(setting, iterations=300, seed=1)
    assert (series.speed > 0).all()
    for reading in (series.cpu, series.memory):
        assert (reading >= 0).all()
        assert (reading <= 1).all()


def test_cpu_tells_most_where_all_tasks_are_visible() -> None:
    told = {}
    for setting in SETTINGS:
        series = generate(setting, iterations=1000, seed=2)
        slopes = [np.corrcoef(series.cpu[:, i], np.log(series.speed[:, i]))[0, 1] for i in range(32)]
        told[setting.name] = -np.nanmean(slopes)
    assert told["leftovers"] > 0.7
    assert told["blind"] < told["leftovers"] - 0.1
