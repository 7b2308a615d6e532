"""Laws of every registered predictor, whatever it measures; registering is joining."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.choices import Trainable
from controlplane.core.events import PredictorTrained
from controlplane.policies import registry
from controlplane.policies.prediction.interface import Measured
from controlplane.policies.prediction.networks import NETWORKS
from tests.policies.cluster import resolve
from tests.support.examples import examples

NAMES = registry.names("prediction")

measurements = st.builds(Measured, speed=st.floats(1e-3, 1e6), cpu=st.floats(0.0, 1.0), memory=st.floats(0.0, 1.0))
histories = st.lists(st.dictionaries(st.integers(0, 5), measurements, max_size=5), max_size=25)

TRAINED = NETWORKS.keys()

every_predictor = pytest.mark.parametrize("name", NAMES)


def kept(predictor, state):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=predictor.state_type)


def after(predictor, history):
    state = predictor.start()
    for measured in history:
        state = predictor.observe(measured, state)
    return state


@every_predictor
@settings(max_examples=examples(40), deadline=None)
@given(history=histories)
def test_everyone_who_was_measured_and_no_other_is_predicted_with_a_finite_speed(name, history):
    predictor = resolve("prediction", name)
    predicted = predictor.predict(after(predictor, history))
    assert predicted.keys() == {rank for measured in history for rank in measured}
    assert all(-1e12 < speed < 1e12 for speed in predicted.values())


@every_predictor
@settings(max_examples=examples(25), deadline=None)
@given(history=histories)
def test_a_snapshot_between_any_two_iterations_changes_nothing(name, history):
    predictor = resolve("prediction", name)
    state = other = predictor.start()
    for measured in history:
        before = msgspec.msgpack.encode(state)
        following = predictor.observe(measured, state)
        assert msgspec.msgpack.encode(state) == before
        state, other = following, predictor.observe(measured, kept(predictor, other))
    assert msgspec.msgpack.encode(state) == msgspec.msgpack.encode(other)
    assert predictor.predict(state) == predictor.predict(other)


@every_predictor
@settings(max_examples=examples(25), deadline=None)
@given(history=histories)
def test_the_order_in_which_workers_are_named_does_not_matter(name, history):
    predictor = resolve("prediction", name)
    turned = [dict(reversed(measured.items())) for measured in history]
    assert predictor.predict(after(predictor, history)) == predictor.predict(after(predictor, turned))


@every_predictor
@settings(max_examples=examples(25), deadline=None)
@given(history=histories, ranks=st.sets(st.integers(0, 5)))
def test_the_state_of_a_worker_that_left_the_roster_is_dropped_and_it_can_return(name, history, ranks):
    predictor = resolve("prediction", name)
    state = predictor.keep(ranks, after(predictor, history))
    known = {rank for measured in history for rank in measured}
    assert predictor.predict(state).keys() == known & ranks
    again = predictor.observe({rank: Measured(speed=10.0) for rank in range(6)}, state)
    assert predictor.predict(again).keys() == set(range(6))


@every_predictor
@settings(max_examples=examples(20), deadline=None)
@given(speed=st.floats(0.1, 1e5), cpu=st.floats(0.0, 1.0))
def test_a_constant_speed_is_predicted_as_it_is(name, speed, cpu):
    predictor = resolve("prediction", name)
    state = after(predictor, [{0: Measured(speed=speed, cpu=cpu, memory=0.5)}] * 12)
    assert predictor.predict(state)[0] == pytest.approx(speed, rel=1e-6)


@every_predictor
@settings(max_examples=3, deadline=None)
@given(speeds=st.lists(st.floats(0.1, 1e5), min_size=1, max_size=8), seed=st.integers(0, 9))
def test_on_constant_speeds_no_one_is_worse_than_the_average_once_trained(name, speeds, seed):
    predictor = resolve("prediction", name, **({"samples": 30} if name in TRAINED else {}))
    chance = np.random.default_rng(seed)
    loads = chance.uniform(0.0, 1.0, (40, len(speeds), 2)).tolist()
    state = predictor.start()
    for of in loads:
        loaded = enumerate(zip(speeds, of, strict=True))
        state = predictor.observe({rank: Measured(speed=v, cpu=c, memory=m) for rank, (v, (c, m)) in loaded}, state)
        if isinstance(predictor, Trainable):
            state, lesson = predictor.request_lesson(state)
            if lesson is not None:
                weights, error = predictor.fit(lesson.data, seed)
                assert error == pytest.approx(0.0, abs=1e-3)
                news = PredictorTrained(predictor=name, round=lesson.round, weights=weights)
                state, _ = predictor.learn(state, news)
    assert predictor.predict(state) == pytest.approx(dict(enumerate(speeds)), rel=1e-6)


@every_predictor
def test_what_was_learnt_from_another_job_is_used_at_once_and_only_where_it_fits(name):
    predictor = resolve("prediction", name)
    if not isinstance(predictor, Trainable):
        return
    teacher = resolve("prediction", name, samples=40)
    history = [{r: Measured(speed=100.0 + 10 * r + k % 3, cpu=0.2, memory=0.4) for r in range(3)} for k in range(60)]
    state = after(teacher, history)
    state, lesson = teacher.request_lesson(state)
    assert lesson is not None
    assert teacher.request_lesson(state)[1] is None
    weights, error = teacher.fit(lesson.data, 7)
    assert 0 <= error < 10
    assert teacher.fit(lesson.data, 7) == (weights, error)
    news = PredictorTrained(predictor=name, round=0, weights=weights, source="job 3")
    learnt, sentence = predictor.learn(predictor.start(), news)
    assert sentence.startswith(f"{name} was trained by job 3, models of 3 workers and a common one")
    state = learnt
    for measured in history[:5]:
        state = predictor.observe({rank + 3: seen for rank, seen in measured.items()}, state)
    predicted = predictor.predict(kept(predictor, state))
    assert all(speed == pytest.approx(100.0 + 10 * (rank - 3), rel=0.1) for rank, speed in predicted.items())
    with pytest.raises(ValueError, match="round 4, expected one after 0 and up to 0"):
        predictor.learn(predictor.start(), PredictorTrained(predictor=name, round=4, weights=weights))
    with pytest.raises(ValueError, match=r"expected those of \('\w+', 2, 5\)"):
        resolve("prediction", name, hidden=5).learn(predictor.start(), news)
    with pytest.raises(ValueError, match="cannot be read"):
        predictor.learn(predictor.start(), PredictorTrained(predictor=name, round=0, weights=b"x"))
