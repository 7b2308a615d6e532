"""Any choice follows any other on a running job, with any parameters, and the job continues deciding."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controlplane.core.commands import ChangePolicies, DeclineRequest, SetShares
from controlplane.core.engine import Engine
from controlplane.core.events import ChangeRequested
from controlplane.core.states import JobState
from controlplane.policies import registry
from controlplane.policies.registry import resolve
from controlplane.protocol.spec import Choice
from tests.core.motion import Motion
from tests.core.story import Story
from tests.properties.drawn import choices
from tests.support.examples import examples

SPEEDS = {0: 1000.0, 1: 900.0, 2: 500.0, 3: 250.0}
BATCH = 256


def change(**of: Choice) -> ChangeRequested:
    return ChangeRequested(actor="ada", choices=of)


def lb_bsp(predictor: str = "arima", **parameters: object) -> Choice:
    return Choice(name="lb-bsp-cpu", parameters={"predictor": {"name": predictor, **parameters}})


def goes_on_deciding(told: Story, start: int, iterations: int) -> None:
    """Shares of the whole batch are decided on each iteration, by this engine and by one out of its snapshot."""
    told.iterate(iterations, speeds=SPEEDS, start=start)
    job = told.engine._job
    assert (job.state, job.pauses, job.generation.is_short) == (JobState.RUNNING, {}, False)
    assert job.round.completed == start + iterations - 1
    assert sum(job.generation.shares.values()) == BATCH
    told.engine.validate()
    assert Engine.restore(told.engine.snapshot(), resolve=resolve).snapshot() == told.engine.snapshot()


@settings(max_examples=examples(120), deadline=None)
@given(before=choices("batching"), after=choices("batching"), iterations=st.integers(0, 12))
@example(before=lb_bsp(), after=lb_bsp(p=3), iterations=8)
@example(before=lb_bsp("narx", look_back=2), after=lb_bsp("narx", look_back=5), iterations=8)
@example(before=lb_bsp("narx", look_back=2), after=lb_bsp("narx", look_back=5), iterations=0)
@example(before=lb_bsp("narx", hidden=8), after=lb_bsp("narx", hidden=2), iterations=8)
def test_any_batching_follows_any_other_and_the_job_continues_deciding(before, after, iterations):
    told = Story(synchronization={"batching": {"name": before.name, **before.parameters}}).running()
    goes_on_deciding(told, 0, iterations)
    asked = told.see(change(batching=after))
    if isinstance(asked[0], DeclineRequest):
        assert before == after
        return
    assert told.engine._job.pauses == {}
    goes_on_deciding(told, iterations, 6)


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), name=st.sampled_from(registry.names("prediction")))
def test_other_parameters_of_a_predictor_leave_the_shares_near_what_it_had_learnt(data, name):
    before, after = (data.draw(choices("prediction", of=name)) for _ in range(2))
    told = Story(synchronization={"batching": {"name": "lb-bsp-cpu", "predictor": flat(before)}}).running()
    told.iterate(8, speeds=SPEEDS)
    learnt = dict(told.engine._job.generation.shares)
    asked = told.see(change(batching=Choice(name="lb-bsp-cpu", parameters={"predictor": flat(after)})))
    if not isinstance(asked[0], DeclineRequest):
        assert told.given(SetShares)[-1].shares == pytest.approx(learnt, abs=8)
    goes_on_deciding(told, 8, 4)


def flat(choice: Choice) -> dict[str, object]:
    return {"name": choice.name, **choice.parameters}


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), question=st.sampled_from(["barrier", "placement", "data"]), when_ms=st.integers(0, 1200))
def test_any_other_choice_follows_any_other_and_the_job_comes_to_its_end(data, question, when_ms):
    before, after = (data.draw(choices(question)) for _ in range(2))
    told = Motion(list(SPEEDS.values()), synchronization={question: flat(before)}, stop={"iterations": 30})
    told.run(until_ms=when_ms)
    told.tell(change(**{question: after}))
    told.run()
    told.engine.validate()
    assert told.state == "succeeded"
    assert told.engine.failure is None
    assert len(told.story.given(ChangePolicies)) <= 1
