"""An autopilot in the engine: what it asks for, what follows from an answer, and that all of it is in the log."""

import pytest

from controlplane.core.choices import PlayedAlternative
from controlplane.core.commands import (
    ChangePolicies,
    DeclineRequest,
    JudgeAlternatives,
    JudgeConvergence,
    MeasureSwitch,
    PlayAlternatives,
    SetAutopilot,
)
from controlplane.core.context import EventRefused
from controlplane.core.engine import Engine
from controlplane.core.events import (
    AlternativesPlayed,
    AutopilotRequested,
    ChangeRequested,
    PauseRequested,
    ResumeRequested,
)
from controlplane.policies.registry import resolve
from controlplane.protocol.spec import Choice
from tests.core.attached import Attached
from tests.core.motion import Motion
from tests.core.story import Story

EQUAL = dict.fromkeys(range(4), 1000.0)
EMA = "lb-bsp-cpu with ema, bsp"


def asked(**changes: object) -> Story:
    """A job whose autopilot waits for its first simulation."""
    story = Story(policy="auto", **changes).running() if "autopilot" not in changes else Story(**changes).running()
    story.iterate(17, speeds=EQUAL)
    return story


def slower(story: Story, iterations: int, start: int) -> None:
    """Each iteration takes several times as long as before."""
    for iteration in range(start, start + iterations):
        story.now_ms += 200
        story.iterate(1, speeds=EQUAL, start=iteration)


def answered(story: Story, saved: float = 0.3, error: float = 0.05, name: str = EMA) -> Story:
    """With one alternative that was simulated."""
    look = story.given(PlayAlternatives)[-1].look
    row = PlayedAlternative(name=name, saved=saved, low=saved, high=saved)
    story.see(AlternativesPlayed(look=look, error=error, played=[row]))
    return story


def test_after_enough_iterations_it_requests_a_simulation_of_what_its_job_may_have() -> None:
    (command,) = asked().given(PlayAlternatives)
    assert (command.look, command.present, command.since) == (1, "uniform, bsp", 0)
    assert list(command.alternatives) == ["uniform, bsp", EMA, "lb-bsp-linear, bsp"]
    assert command.reason == "15 global batches were measured"


def test_it_switches_to_what_saves_more_than_the_error_and_reports_why() -> None:
    story = answered(asked())
    (judged,) = story.given(JudgeAlternatives)
    assert (judged.chosen, judged.switches, judged.present) == (EMA, True, "uniform, bsp")
    assert judged.reason == f"{EMA} is predicted to save 30% of uniform, bsp's time, the error is 5.0%"
    assert [(row.name, row.saved, row.error, row.verdict) for row in judged.rows] == [(EMA, 0.3, 0.05, "saves most")]
    (change,) = story.given(ChangePolicies)
    assert {question: choice.name for question, choice in change.choices.items()} == {"batching": "lb-bsp-cpu"}
    assert change.reason == "batching becomes lb-bsp-cpu, requested by autopilot"


def test_it_stays_where_the_gain_is_within_the_error() -> None:
    story = answered(asked(), saved=0.3, error=0.31)
    (judged,) = story.given(JudgeAlternatives)
    assert (judged.chosen, judged.switches) == ("", False)
    assert judged.reason == f"uniform, bsp stays; next best: {EMA} (saves no more than the error)"
    assert story.given(ChangePolicies) == []


def test_it_goes_back_from_a_switch_after_which_a_sample_takes_longer() -> None:
    story = answered(asked())
    slower(story, 30, start=17)
    (measured,) = story.given(MeasureSwitch)
    assert (measured.name, measured.kept, measured.goes_back) == (EMA, False, True)
    assert measured.after_s > measured.before_s
    back = story.given(ChangePolicies)[-1]
    assert {question: choice.name for question, choice in back.choices.items()} == {"batching": "uniform"}


def test_a_switch_that_was_right_stays() -> None:
    story = answered(asked())
    story.iterate(30, speeds=EQUAL, start=17)
    (measured,) = story.given(MeasureSwitch)
    assert measured.kept
    assert not measured.goes_back
    assert len(story.given(ChangePolicies)) == 1


def test_in_suggest_mode_it_only_proposes() -> None:
    story = answered(asked(autopilot={"mode": "suggest"}))
    (judged,) = story.given(JudgeAlternatives)
    assert (judged.chosen, judged.switches) == (EMA, False)
    assert {question: choice.name for question, choice in judged.choices.items()} == {"batching": "lb-bsp-cpu"}
    assert story.given(ChangePolicies) == []


def test_after_a_users_change_it_only_proposes_until_it_is_set_to_auto() -> None:
    story = asked()
    story.see(ChangeRequested(actor="ada", choices={"batching": Choice(name="lb-bsp-linear")}))
    story.iterate(20, speeds=EQUAL, start=17)
    (told,) = story.given(SetAutopilot)
    assert told.mode == "suggest"
    assert told.reason == "ada changed uniform, bsp to lb-bsp-linear, bsp: the autopilot only proposes now"
    answered(story)
    assert not story.given(JudgeAlternatives)[-1].switches
    story.see(AutopilotRequested(actor="ada", mode="auto"))
    assert story.given(SetAutopilot)[-1].reason == "ada: the autopilot switches by itself from now on"
    story.iterate(20, speeds=EQUAL, start=37)
    answered(story)
    assert story.given(JudgeAlternatives)[-1].switches


def test_another_placement_does_not_change_its_mode() -> None:
    story = asked()
    story.see(ChangeRequested(actor="ada", choices={"placement": Choice(name="psld")}))
    story.iterate(5, speeds=EQUAL, start=17)
    assert len(story.given(ChangePolicies)) == 1
    assert story.given(SetAutopilot) == []


def test_its_own_change_that_waits_for_every_worker_is_named_as_its_own_and_leaves_its_mode() -> None:
    told = Motion(
        [1000.0, 900.0, 500.0],
        autopilot={"mode": "auto", "barriers": ["bsp"]},
        synchronization={"barrier": "asp"},
        stop={"iterations": 200},
    )
    while not told.story.given(PlayAlternatives):
        told.run(until_ms=200.0)
    play(told, "uniform, bsp")
    told.run(until_ms=2_000.0)
    (change,) = told.story.given(ChangePolicies)
    assert change.reason == "barrier becomes bsp, requested by autopilot: every worker has stopped"
    assert told.story.given(SetAutopilot) == []


def play(told: Motion, name: str) -> None:
    look = told.story.given(PlayAlternatives)[-1].look
    row = PlayedAlternative(name=name, saved=0.4, low=0.4, high=0.4)
    told.tell(AlternativesPlayed(look=look, error=0.05, played=[row]))


def test_a_switch_after_as_many_batches_as_the_guard_needs_is_judged() -> None:
    told = Motion(
        [1000.0, 900.0, 500.0],
        guard={"reference": 20},
        autopilot={"mode": "auto", "barriers": ["asp"], "learn": 20},
        stop={"iterations": 200},
    )
    while not told.story.given(PlayAlternatives):
        told.run(until_ms=50.0)
    play(told, "uniform, asp")
    told.run()
    assert [each.verdict for each in told.story.given(JudgeConvergence)] == ["harmless"]


def test_what_the_guard_took_back_is_not_tried_again_soon_and_the_mode_stays() -> None:
    told = Motion(
        [1000.0, 900.0, 500.0],
        guard="revert",
        autopilot={"mode": "auto", "barriers": ["asp"], "learn": 65},
        stop={"iterations": 600},
    )
    while not told.story.given(PlayAlternatives):
        told.run(until_ms=200.0)
    play(told, "uniform, asp")
    told.loss = 2.0
    while len(told.story.given(PlayAlternatives)) < 2:
        assert not told.over
        told.run(until_ms=500.0)
    play(told, "uniform, asp")
    assert [each.verdict for each in told.story.given(JudgeConvergence)] == ["harmful"]
    assert told.story.given(SetAutopilot) == []
    first, second = told.story.given(JudgeAlternatives)
    assert first.switches
    assert (second.present, second.chosen) == ("uniform, bsp", "")
    assert second.rows[0].verdict.startswith("not tried again for ")
    assert told.story.given(ChangePolicies)[-1].reason.startswith("barrier becomes bsp, requested by guard")


def test_a_switch_that_the_job_cannot_have_any_more_is_declined_and_changes_nothing() -> None:
    story = asked(stop={"iterations": 18})
    answered(story)
    assert story.given(ChangePolicies) == []
    declined = story.given(DeclineRequest)[-1]
    assert declined.actor == "autopilot"
    assert declined.reason.startswith(f"{EMA} is not possible now: job 7: change by autopilot would begin with")


def test_a_long_pause_is_not_part_of_the_time_per_sample() -> None:
    story = asked(autopilot={"mode": "suggest"})
    pace_s = 0.01 / 64
    story.see(PauseRequested(actor="ada"))
    story.see(AutopilotRequested(actor="ada", mode="auto"), after_ms=600_000)
    story.see(ResumeRequested(actor="ada"))
    story.iterate(20, speeds=EQUAL, start=17)
    answered(story)
    story.iterate(30, speeds=EQUAL, start=37)
    (measured,) = story.given(MeasureSwitch)
    assert measured.before_s == pytest.approx(pace_s, rel=0.02)


@pytest.mark.parametrize("away_ms", [1, 600_000])
def test_an_answer_that_comes_in_a_pause_changes_nothing_and_it_repeats_the_request_after_the_pause(
    away_ms: int,
) -> None:
    story = asked()
    story.see(PauseRequested(actor="ada"))
    story.now_ms += away_ms
    answered(story)
    (judged,) = story.given(JudgeAlternatives)
    assert (judged.chosen, judged.switches, judged.reason) == ("", False, "uniform, bsp stays: the job is paused")
    assert story.given(ChangePolicies) == []
    story.see(ResumeRequested(actor="ada"))
    story.iterate(20, speeds=EQUAL, start=17)
    assert len(story.given(PlayAlternatives)) == 2
    answered(story)
    assert story.given(JudgeAlternatives)[-1].switches


def test_a_change_that_a_person_made_in_a_pause_is_not_overridden_by_an_answer() -> None:
    story = asked()
    story.see(PauseRequested(actor="ada"))
    story.see(ChangeRequested(actor="ada", choices={"batching": Choice(name="lb-bsp-linear")}))
    answered(story)
    (change,) = story.given(ChangePolicies)
    assert change.reason == "batching becomes lb-bsp-linear, requested by ada"
    story.see(ResumeRequested(actor="ada"))
    story.iterate(20, speeds=EQUAL, start=17)
    assert story.engine._job.synchronization.batching.name == "lb-bsp-linear"
    assert story.given(PlayAlternatives)[-1].present == "lb-bsp-linear, bsp"
    answered(story)
    assert not story.given(JudgeAlternatives)[-1].switches, "after a person's change it only proposes"


def test_a_pending_change_of_a_person_is_not_withdrawn_by_an_answer() -> None:
    story = Story(autopilot={"mode": "auto", "barriers": ["ssp"]}, synchronization={"barrier": "asp"}).running()
    for iteration in range(60):
        story.iterate(1, speeds=EQUAL, start=iteration)
        if story.given(PlayAlternatives):
            break
    story.see(ChangeRequested(actor="ada", choices={"barrier": Choice(name="bsp")}))
    assert list(story.engine._job.requests.choices) == ["barrier"]
    answered(story, name="uniform, ssp")
    assert story.given(ChangePolicies) == []
    assert story.engine._job.requests.choices == {"barrier": Choice(name="bsp")}
    reason = story.given(JudgeAlternatives)[-1].reason
    assert reason == "uniform, asp stays: another change waits until every worker has stopped"


def test_why_nothing_could_be_simulated_is_reported() -> None:
    story = asked()
    story.see(AlternativesPlayed(look=1, reason="w3 has 2 iterations"))
    (judged,) = story.given(JudgeAlternatives)
    assert (judged.reason, judged.rows) == ("uniform, bsp stays: w3 has 2 iterations", [])


def test_a_job_without_an_autopilot_refuses_its_events() -> None:
    story = Story().running()
    with pytest.raises(EventRefused, match="it has none; submit a job with policy: auto"):
        story.see(AlternativesPlayed(look=1))
    assert "policy: auto" in story.declined(AutopilotRequested(actor="ada", mode="auto"))


def test_from_any_snapshot_it_decides_the_same() -> None:
    """A restart of the control plane loses nothing of what it has measured and tried."""
    story = answered(asked())
    slower(story, 30, start=17)
    story.iterate(40, speeds=EQUAL, start=47)
    again = Engine(job=7, resolve=resolve)
    commands = []
    for at, entry in enumerate(story.entries):
        if at % 7 == 3:
            again = Engine.restore(again.snapshot(), resolve=resolve)
        commands += again.handle(entry)
    assert commands == story.commands
    assert again.snapshot() == story.engine.snapshot()


def test_an_attached_job_switches_its_shares_and_goes_back_where_they_are_slower() -> None:
    """Its ranks take other shares without a restart."""
    story = Attached(policy="auto").running()
    story.iterate_at(17, 1000.0, 500.0)
    (asked_for,) = story.given(PlayAlternatives)
    assert list(asked_for.alternatives) == ["uniform, bsp", EMA, "lb-bsp-linear, bsp"]
    answered(story)
    assert story.given(JudgeAlternatives)[-1].switches
    story.iterate_at(8, 1000.0, 500.0, start=17)
    shares = story.orders[0].shares
    assert shares[0] > shares[1]
    assert sum(shares) == 64
    for iteration in range(25, 55):
        story.now_ms += 400
        story.iterate_at(1, 1000.0, 500.0, start=iteration)
    assert story.given(MeasureSwitch)[0].goes_back
    assert story.orders[0].shares == [32, 32]
