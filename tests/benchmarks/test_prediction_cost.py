"""What the bench of predictors makes of its measurements, and one short run."""

import io

import pytest

from benchmarks.offline import prediction_cost
from benchmarks.offline.prediction_cost import failures, measure


def test_a_predictor_at_its_bars_passes() -> None:
    assert failures("narx", 0.005, {100: 0.3, 1_000: 2.0, 5: 99.0}) == []


def test_every_missed_bar_is_named() -> None:
    assert failures("narx", 0.0061, {100: 0.31, 1_000: 2.04}) == [
        "narx: predicting takes 6.10 ms, at most 5 expected",
        "narx: training 100 workers takes 0.31 s, at most 0.3 expected",
        "narx: training 1,000 workers takes 2.04 s, at most 2 expected",
    ]


@pytest.mark.parametrize(("took_s", "code"), [(0.3, 0), (0.31, 1)])
def test_a_missed_bar_is_the_exit_code(took_s: float, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_cost, "measure", lambda *_: (0.0, 0.0, {100: took_s}))
    out = io.StringIO()
    assert prediction_cost.main([], out) == code
    assert ("missed: ema: training 100 workers takes 0.31 s" in out.getvalue()) == bool(code)


def test_training_is_measured_for_each_number_of_workers() -> None:
    predict_s, observe_s, train_s = measure("narx", 2, [1, 2])
    assert train_s.keys() == {1, 2}
    assert min(predict_s, observe_s, *train_s.values()) > 0
