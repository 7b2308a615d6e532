"""Predictors that are trained outside of the engine: what they ask for, what comes back, what they then know."""

import subprocess
import sys

import msgspec
import numpy as np
import pytest
import torch

from benchmarks.offline.prediction import run
from benchmarks.offline.speed_series import SETTINGS, generate
from controlplane.core.events import PredictorTrained
from controlplane.policies.prediction import fitting
from controlplane.policies.prediction.interface import Measured
from controlplane.policies.prediction.networks import NETWORKS, Network, relative
from controlplane.policies.prediction.weights import LessonData, Weights
from tests.policies.cluster import resolve

EVERY = pytest.mark.parametrize("name", sorted(NETWORKS))


def busy_machines(iterations: int, workers: int = 3) -> list[dict[int, Measured]]:
    """Speed is 100 times what others leave of the CPU, which they take or leave for ten iterations at a time."""
    chance = np.random.default_rng(1)
    used = np.repeat(chance.choice([0.1, 0.6], (iterations // 10 + 1, workers)), 10, axis=0)
    noise = chance.normal(0.0, 0.5, (iterations, workers))
    return [
        {
            rank: Measured(speed=100.0 * (1 - used[k, rank]) + noise[k, rank], cpu=used[k + 1, rank], memory=0.5)
            for rank in range(workers)
        }
        for k in range(iterations)
    ]


@EVERY
def test_numpy_and_torch_run_the_same_network(name: str) -> None:
    network: Network = NETWORKS[name]
    chance = np.random.default_rng(2)
    shapes = network.shapes(2, 5)
    weights = {key: chance.normal(size=(3, *shape)) for key, shape in shapes.items()}
    window = chance.normal(size=(3, 7, network.rows(2), 3))
    on_numpy = network.forward(np, weights, network.inputs(np, window, 2))
    tensors = {key: torch.from_numpy(value) for key, value in weights.items()}
    on_torch = network.forward(torch, tensors, network.inputs(torch, torch.from_numpy(window), 2))
    assert on_numpy.shape == (3, 7)
    np.testing.assert_allclose(on_numpy, on_torch.numpy(), rtol=1e-12)


def test_narx_looks_at_the_series_of_equation_4() -> None:
    window = np.array([[[1.0, 0.9, 0.8], [2.0, 0.7, 0.6], [3.0, 0.5, 0.4]]])
    inputs = NETWORKS["narx"].inputs(np, window, 2)
    assert inputs.tolist() == [[1.0, 2.0, 0.9, 0.7, 0.5, 0.8, 0.6, 0.4]]


def test_speed_is_taken_relative_to_the_usual_one() -> None:
    window = np.array([[[125.0, 0.75, 0.25]]])
    assert relative(window, np.array([100.0])).tolist() == [[[1.0, 1.0, -1.0]]]


@EVERY
def test_until_it_is_trained_the_average_is_predicted(name: str) -> None:
    predictor, ema = resolve("prediction", name), resolve("prediction", "ema")
    state, average = predictor.start(), ema.start()
    for measured in busy_machines(20):
        state, average = predictor.observe(measured, state), ema.observe(measured, average)
    assert predictor.predict(state) == ema.predict(average)


def test_predicting_loads_no_torch() -> None:
    script = (
        "import sys; from controlplane.policies.registry import resolve; "
        "from controlplane.protocol.spec import Choice; "
        "from controlplane.policies.prediction.interface import Measured; "
        "narx = resolve('prediction', Choice(name='narx')); "
        "print(narx.predict(narx.observe({0: Measured(speed=2.0)}, narx.start())), 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "{0: 2.0} False"


def test_a_lesson_is_requested_after_so_many_iterations_and_again_after_as_many() -> None:
    narx = resolve("prediction", "narx", samples=30, retrain_every=40)
    state = narx.start()
    asked = []
    for k, measured in enumerate(busy_machines(120), start=1):
        state, lesson = narx.request_lesson(narx.observe(measured, state))
        if lesson is not None:
            asked.append((k, lesson.round, lesson.reason))
            answer = PredictorTrained(predictor="narx", round=lesson.round, weights=narx.fit(lesson.data, 0)[0])
            state, _ = narx.learn(state, answer)
    reason = "narx can be fitted to 30 iterations of 3 workers"
    assert asked == [(30, 1, reason), (70, 2, reason), (110, 3, reason)]


def test_no_other_lesson_is_requested_while_one_is_answered_until_it_must_be_lost() -> None:
    narx = resolve("prediction", "narx", samples=20, retrain_every=20)
    state = narx.start()
    asked = []
    for k, measured in enumerate(busy_machines(500), start=1):
        state, lesson = narx.request_lesson(narx.observe(measured, state))
        asked += [k] if lesson is not None else []
    assert asked == [20, 20 + 4 * 20, 20 + 4 * 20 + 16 * 20]


def test_a_lesson_carries_the_history_with_gaps_where_a_worker_was_not_measured() -> None:
    narx = resolve("prediction", "narx", samples=20)
    state = narx.start()
    for k in range(20):
        measured = {0: Measured(speed=10.0 + k, cpu=0.25, memory=0.5)}
        if k >= 15:
            measured[2] = Measured(speed=7.0)
        state = narx.observe(measured, state)
    _, lesson = narx.request_lesson(state)
    data = msgspec.msgpack.decode(lesson.data, type=LessonData)
    assert (data.ranks, data.array().shape) == ([0, 2], (20, 2, 3))
    assert data.array()[19].tolist() == [[29.0, 0.25, 0.5], [7.0, 0.0, 0.0]]
    assert np.isnan(data.array()[:15, 1]).all()


def test_narx_learns_that_cpu_tells_the_coming_speed_and_the_blind_ones_cannot() -> None:
    errors = {}
    for name in NETWORKS:
        predictor = resolve("prediction", name, samples=300)
        history = busy_machines(400)
        state = predictor.start()
        missed = []
        for k, measured in enumerate(history):
            if k >= 301:
                predicted = predictor.predict(state)
                missed += [predicted[rank] - seen.speed for rank, seen in measured.items()]
            state, lesson = predictor.request_lesson(predictor.observe(measured, state))
            if lesson is not None:
                weights, error = predictor.fit(lesson.data, 0)
                outcome = PredictorTrained(predictor=name, round=lesson.round, weights=weights, error=error)
                state, _ = predictor.learn(state, outcome)
        errors[name] = float(np.sqrt(np.mean(np.square(missed))))
    assert errors["narx"] < 2.5
    assert min(errors["rnn"], errors["lstm"]) > 5.0


def test_each_worker_stays_with_its_average_where_that_is_no_worse() -> None:
    narx, ema = resolve("prediction", "narx", samples=300), resolve("prediction", "ema")
    state, average = narx.start(), ema.start()
    steady = Measured(speed=40.0, cpu=0.5, memory=0.5)
    for measured in busy_machines(310):
        seen = measured | {1: steady}
        state, average = narx.observe(seen, state), ema.observe(seen, average)
        state, lesson = narx.request_lesson(state)
        if lesson is not None:
            weights, _ = narx.fit(lesson.data, 0)
            outcome = PredictorTrained(predictor="narx", round=lesson.round, weights=weights)
            state, sentence = narx.learn(state, outcome)
    assert sentence == (
        "narx was trained, models of 3 workers and a common one; 1 of 3 stay with their average, which is no worse"
    )
    predicted, expected = narx.predict(state), ema.predict(average)
    assert predicted[1] == pytest.approx(40.0, rel=1e-8)
    assert all(predicted[rank] != pytest.approx(expected[rank], rel=1e-6) for rank in (0, 2))


def test_weights_that_were_compared_with_no_average_are_used_as_they_are() -> None:
    narx = resolve("prediction", "narx", samples=30)
    state = narx.start()
    for measured in [{0: Measured(speed=40.0)}] * 30:
        state, lesson = narx.request_lesson(narx.observe(measured, state))
    weights = msgspec.msgpack.decode(narx.fit(lesson.data, 0)[0], type=Weights)
    assert weights.better == [False, False]
    older = msgspec.msgpack.encode(msgspec.structs.replace(weights, better=[]))
    learnt, sentence = narx.learn(state, PredictorTrained(predictor="narx", round=1, weights=older))
    assert sentence == "narx was trained, models of 1 workers and a common one"
    assert 0 < abs(narx.predict(learnt)[0] - 40.0) < 4.0
    wrong = msgspec.msgpack.encode(msgspec.structs.replace(weights, better=[True]))
    with pytest.raises(ValueError, match="found 1 comparisons with the average, expected 2"):
        narx.learn(state, PredictorTrained(predictor="narx", round=1, weights=wrong))


def test_an_answer_is_taken_once_and_an_older_one_not_at_all() -> None:
    narx = resolve("prediction", "narx", samples=30, retrain_every=30)
    state = narx.start()
    lessons = []
    for measured in busy_machines(150):
        state, lesson = narx.request_lesson(narx.observe(measured, state))
        lessons += [lesson] if lesson is not None else []
    answers = [
        PredictorTrained(predictor="narx", round=lesson.round, weights=narx.fit(lesson.data, 0)[0])
        for lesson in lessons
    ]
    learnt, sentence = narx.learn(state, answers[1])
    assert sentence == "narx was trained, models of 3 workers and a common one"
    for answer in answers:
        with pytest.raises(
            ValueError, match=f"found weights of round {answer.round}, expected one after 2 and up to 2"
        ):
            narx.learn(learnt, answer)


def test_a_second_fit_begins_at_the_first_ones_weights() -> None:
    narx = resolve("prediction", "narx", samples=300, retrain_every=20)
    state = narx.start()
    initial = []
    for measured in busy_machines(330):
        state, lesson = narx.request_lesson(narx.observe(measured, state))
        if lesson is not None:
            data = msgspec.msgpack.decode(lesson.data, type=LessonData)
            initial.append(data.initial)
            weights, _ = narx.fit(lesson.data, 0)
            state, _ = narx.learn(state, PredictorTrained(predictor="narx", round=lesson.round, weights=weights))
    assert initial[0] == b""
    assert msgspec.msgpack.decode(initial[1], type=Weights).ranks == [0, 1, 2]


def test_a_lesson_of_too_few_iterations_is_refused() -> None:
    narx = resolve("prediction", "narx")
    line = np.ones((3, 1, 3), dtype=np.float32).tobytes()
    data = msgspec.msgpack.encode(LessonData(ranks=[0], history=line))
    with pytest.raises(ValueError, match="narx: found 3 iterations, expected more than 3"):
        narx.fit(data, 0)


def test_what_is_trained_once_is_requested_once() -> None:
    narx = resolve("prediction", "narx", samples=20, retrain_every=0)
    state = narx.start()
    asked = []
    for k, measured in enumerate(busy_machines(400), start=1):
        state, lesson = narx.request_lesson(narx.observe(measured, state))
        asked += [k] if lesson is not None else []
    assert asked == [20]


@EVERY
def test_by_default_it_is_trained_again_every_100_iterations(name: str) -> None:
    predictor = resolve("prediction", name)
    state, asked, weights = predictor.start(), [], b""
    for k, measured in enumerate(busy_machines(820), start=1):
        state, lesson = predictor.request_lesson(predictor.observe(measured, state))
        if lesson is not None:
            asked.append(k)
            weights = weights or predictor.fit(lesson.data, 0)[0]
            state, _ = predictor.learn(state, PredictorTrained(predictor=name, round=lesson.round, weights=weights))
    assert asked == [500, 600, 700, 800]


@pytest.mark.parametrize("seed", range(3))
def test_narx_and_regression_err_less_than_the_average_on_machines_like_cluster_b(seed: int) -> None:
    series = generate(SETTINGS[0], iterations=1500, seed=seed)
    errors = {name: run(name, series).rmse for name in ("ema", "narx", "regression")}
    assert errors["narx"] < 0.86 * errors["ema"]
    assert errors["regression"] < 0.86 * errors["ema"], "which needs no training"


@EVERY
def test_models_of_workers_fitted_a_few_at_a_time_are_as_good(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = resolve("prediction", name, samples=200)
    state = predictor.start()
    for measured in busy_machines(200, workers=7):
        state, lesson = predictor.request_lesson(predictor.observe(measured, state))
    weights, together = predictor.fit(lesson.data, 0)
    monkeypatch.setattr(fitting, "TOGETHER", 3)
    again, apart = predictor.fit(lesson.data, 0)
    assert apart == pytest.approx(together, rel=0.02)
    both = [msgspec.msgpack.decode(each, type=Weights) for each in (weights, again)]
    assert both[0].ranks == both[1].ranks == list(range(7))
    assert {key: len(tensor) for key, tensor in both[0].tensors.items()} == {
        key: len(tensor) for key, tensor in both[1].tensors.items()
    }
