import numpy as np
import pytest

from benchmarks.offline.straggler_situations import LASTING, SETTINGS, STORIES, Setting, generate

every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)


@every_setting
def test_a_seed_gives_one_set_of_situations_and_another_seed_another(setting: Setting) -> None:
    first, again, other = (generate(setting, seed=seed, count=5) for seed in (3, 3, 4))
    told = [[situation.compute_s.tobytes() for situation in drawn] for drawn in (first, again, other)]
    assert told[0] == told[1] != told[2]


@every_setting
def test_times_are_positive_where_a_worker_takes_part_and_shares_keep_the_global_batch(setting: Setting) -> None:
    for situation in generate(setting, seed=1, count=60):
        here = ~np.isnan(situation.compute_s)
        assert (situation.compute_s[here] > 0).all()
        assert (situation.exchange_s[here] > 0).all()
        assert (np.nanmin(situation.waiting_s, axis=1) == 0).all()
        total = 64 * situation.samples.shape[1]
        assert (abs(np.where(here, situation.samples, 0).sum(axis=1) - total) <= situation.samples.shape[1]).all()


def test_every_story_is_reported_and_most_labels_are_lasting() -> None:
    situations = generate(SETTINGS[0], seed=0)
    assert {situation.story for situation in situations} == set(STORIES)
    labels = [label for situation in situations for label in situation.labels]
    assert sum(label.lasting for label in labels) > 200
    assert all(label.factor >= LASTING[0] for label in labels if label.lasting)


def test_a_label_names_what_is_slow_in_the_measurements() -> None:
    for situation in generate(SETTINGS[0], seed=2, count=100):
        for label in situation.labels:
            if situation.story == "becomes slow":
                per_sample = situation.compute_s[:, label.index] / situation.samples[:, label.index]
                grown = np.median(per_sample[label.begin :]) / np.median(per_sample[: label.begin])
                assert grown == pytest.approx(label.factor, rel=0.1)
