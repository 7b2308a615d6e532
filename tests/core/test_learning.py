"""Training as an event: what the engine asks for, what it takes, what it refuses."""

import pytest

from controlplane.core import sharing
from controlplane.core.commands import AdoptPredictor, RaiseFlag, ScorePredictors, SetShares, TrainPredictor
from controlplane.core.context import EventRefused
from controlplane.core.engine import Engine
from controlplane.core.events import PredictorPromoted, PredictorTrained
from controlplane.policies.registry import resolve
from controlplane.protocol.spec import Choice
from tests.core.story import Story

NARX = {"batching": {"name": "lb-bsp-cpu", "predictor": {"name": "narx", "samples": 20}, "shadows": ["ema"]}}
SPEEDS = {0: 1000.0, 1: 1000.0, 2: 500.0, 3: 250.0}


def told() -> Story:
    """A job at the moment when its predictor wants to be trained."""
    story = Story(synchronization=NARX, seed=3).running()
    story.iterate(22, speeds=SPEEDS)
    return story


def test_after_enough_iterations_a_command_carries_all_that_a_fit_needs() -> None:
    (command,) = told().given(TrainPredictor)
    assert (command.predictor.name, command.predictor.parameters["samples"]) == ("narx", 20)
    assert (command.round, command.seed) == (1, 3)
    assert command.reason == "narx can be fitted to 20 iterations of 4 workers"
    assert len(command.data) < 1200


def test_the_answer_is_an_event_and_the_next_shares_follow_it() -> None:
    story = told()
    (command,) = story.given(TrainPredictor)
    (adopted,) = story.see(sharing.fit(command, resolve))
    assert isinstance(adopted, AdoptPredictor)
    assert adopted.acting == "narx"
    assert adopted.reason.startswith("narx was trained, models of 4 workers and a common one, error ")
    story.iterate(3, speeds=SPEEDS, start=22)
    assert story.given(SetShares)[-1].reason.startswith("narx expects")


def test_an_answer_that_comes_twice_is_refused_and_changes_nothing() -> None:
    story = told()
    (command,) = story.given(TrainPredictor)
    answer = sharing.fit(command, resolve)
    story.see(answer)
    before = story.engine._policies.dump()
    with pytest.raises(EventRefused, match="found weights of round 1, expected one after 1 and up to 1"):
        story.see(answer)
    assert story.engine._policies.dump() == before


def test_replay_needs_no_training_and_gives_the_same_commands() -> None:
    story = told()
    (command,) = story.given(TrainPredictor)
    story.see(sharing.fit(command, resolve))
    story.iterate(40, speeds=SPEEDS, start=22)
    again = Engine(job=7, resolve=resolve)
    replayed = [answer for entry in story.entries for answer in again.handle(entry)]
    assert replayed == story.commands
    assert again.snapshot() == story.engine.snapshot()
    assert Engine.restore(again.snapshot(), resolve=resolve).snapshot() == again.snapshot()


def test_scores_of_all_predictors_are_recorded_and_one_call_promotes_another() -> None:
    story = told()
    story.iterate(40, speeds=SPEEDS, start=22)
    (scores,) = story.given(ScorePredictors)
    assert (scores.acting, set(scores.scores)) == ("narx", {"narx", "ema"})
    assert scores.reason == ("iteration time over the least possible one: ema 1.000, narx 1.000; narx is active")
    (adopted,) = story.see(PredictorPromoted(predictor="ema", actor="ada"))
    assert (adopted.acting, adopted.reason) == ("ema", "ada promoted ema: shares follow it instead of narx")
    assert "prediction" not in {flag.kind for flag in story.given(RaiseFlag)}


@pytest.mark.parametrize("batching", ["uniform", "lb-bsp-gpu"])
def test_a_policy_without_predictors_refuses_their_events(batching: str) -> None:
    story = Story(synchronization={"batching": batching}).running()
    reason = story.declined(PredictorPromoted(predictor="ema", actor="ada"))
    assert f"job 7: an event for predictor ema, but {batching} trains no predictor" in reason


def test_only_what_can_be_trained_is_trained() -> None:
    command = TrainPredictor(cause="1-0", reason="so", predictor=Choice(name="ema"), round=1, seed=0, data=b"")
    with pytest.raises(TypeError, match="predictor ema has nothing to fit"):
        sharing.fit(command, resolve)
    assert PredictorTrained(predictor="ema", round=0, weights=b"").error is None
