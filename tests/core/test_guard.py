"""A guard's judgements become changes: back to the earlier policies, or a proposal."""

from collections.abc import Callable

import pytest

from controlplane.core.commands import ChangePolicies, CloseFlag, JudgeConvergence, RaiseFlag, RollBack, SetShares
from controlplane.core.events import ChangeRequested
from controlplane.protocol.messages import Evaluation
from controlplane.protocol.spec import Choice, SpecError, parse_spec
from tests.core.attached import Attached
from tests.core.motion import Motion
from tests.core.story import Story
from tests.core.test_filling import FILL, iterate

SPEEDS = [1000.0, 900.0, 500.0]
PASS = 64 * 30
"""Samples of a pass of an attached job."""

BEFORE_MS = 12_000.0
"""More than 60 global batches take."""


def relax(told: Motion, barrier: str, *, loss: float, before_ms: float = BEFORE_MS) -> Motion:
    """The barrier changes in mid-training, and so does the loss."""
    told.run(until_ms=before_ms)
    told.tell(ChangeRequested(actor="ada", choices={"barrier": Choice(name=barrier)}))
    told.loss = loss
    told.run()
    told.engine.validate()
    return told


def guarded(mode: str = "revert", **changes: object) -> Motion:
    return Motion(SPEEDS, guard=mode, stop={"iterations": 200}, **changes)


@pytest.mark.parametrize("barrier", ["asp", "ssp", "pbsp", "aggressive"])
def test_a_relaxation_that_harms_is_taken_back(barrier: str) -> None:
    told = relax(guarded(), barrier, loss=2.0)
    (judgement,) = told.story.given(JudgeConvergence)
    assert (judgement.verdict, judgement.batches, judgement.reverts) == ("harmful", 24, True)
    assert judgement.choices == {"barrier": Choice(name="bsp")}
    assert "more than 1.05 counts as harm" in judgement.reason
    relaxed, restored = told.story.given(ChangePolicies)
    assert restored.reason.startswith("barrier becomes bsp")
    assert relaxed.first_iteration < restored.first_iteration
    assert told.state == "succeeded"


def test_a_relaxation_without_harm_stays() -> None:
    told = relax(guarded(), "asp", loss=1.0)
    (judgement,) = told.story.given(JudgeConvergence)
    assert (judgement.verdict, judgement.batches, judgement.choices) == ("harmless", 48, {})
    assert len(told.story.given(ChangePolicies)) == 1


def test_a_guard_that_suggests_changes_nothing() -> None:
    told = relax(guarded("suggest"), "asp", loss=2.0)
    (judgement,) = told.story.given(JudgeConvergence)
    assert (judgement.verdict, judgement.reverts) == ("harmful", False)
    assert judgement.choices == {"barrier": Choice(name="bsp")}
    assert len(told.story.given(ChangePolicies)) == 1


def test_a_change_too_early_to_judge_reports_it() -> None:
    told = relax(guarded(), "asp", loss=2.0, before_ms=2_000.0)
    (judgement,) = told.story.given(JudgeConvergence)
    assert judgement.verdict == "unknown"
    assert "60 are needed" in judgement.reason


def test_without_a_guard_nothing_is_judged() -> None:
    told = relax(Motion(SPEEDS, stop={"iterations": 200}), "asp", loss=2.0)
    assert told.story.given(JudgeConvergence) == []


def test_shares_alone_are_not_judged() -> None:
    told = guarded()
    told.run(until_ms=BEFORE_MS)
    told.tell(ChangeRequested(actor="ada", choices={"batching": Choice(name="lb-bsp-linear")}))
    told.loss = 2.0
    told.run()
    assert told.story.given(JudgeConvergence) == []


def test_a_user_who_goes_back_first_ends_the_judgement() -> None:
    told = guarded()
    told.run(until_ms=BEFORE_MS)
    told.tell(ChangeRequested(actor="ada", choices={"barrier": Choice(name="asp")}))
    told.loss = 2.0
    told.run(until_ms=500.0)
    told.tell(ChangeRequested(actor="ada", choices={"barrier": Choice(name="bsp")}))
    told.run()
    assert told.story.given(JudgeConvergence) == []
    assert told.state == "succeeded"
    assert told.story.given(RollBack) == []


def skipping(after: int, spoilt: Callable[[int, int], bool], loss: float = 1.0) -> Story:
    """A job that skips updates whose loss is not a number; its barrier changes after 70 iterations."""
    told = Story(guard="revert", on_nan="skip", stop={"iterations": 4000}).running()
    for k in range(after):
        if k == 70:
            told.see(ChangeRequested(actor="ada", choices={"barrier": Choice(name="asp")}))
        for rank in range(4):
            found = (
                {"loss": 0.0, "spoilt": "nan", "samples": 0} if spoilt(rank, k) else {"loss": loss if k >= 70 else 1.0}
            )
            told.report(rank, k, **found)
    return told


@pytest.mark.parametrize(("held_out", "verdict"), [(1.3, "harmful"), (None, "harmful"), (1.0, "harmless")])
def test_a_harm_that_only_evaluations_show_is_found(held_out: float | None, verdict: str) -> None:
    told = Story(guard="revert", stop={"iterations": 4000}).running()
    for k in range(125):
        if k == 70:
            told.see(ChangeRequested(actor="ada", choices={"barrier": Choice(name="asp")}))
        for rank in range(4):
            told.report(rank, k)
        loss = 1.0 if k < 72 else held_out
        scored = Evaluation(number=told.next_number(0), iteration=k, loss=loss, accuracy=0.5, samples=360, seconds=0.01)
        told.say(0, scored)
    (judgement,) = told.given(JudgeConvergence)
    assert judgement.verdict == verdict
    assert ("the held-out loss" in judgement.reason) == (verdict == "harmful")


def test_a_job_whose_updates_are_all_skipped_is_harmed() -> None:
    (judgement,) = skipping(90, lambda rank, k: k >= 75).given(JudgeConvergence)
    assert (judgement.verdict, judgement.measured) == ("harmful", None)


def test_one_skipped_update_changes_no_judgement() -> None:
    (judgement,) = skipping(140, lambda rank, k: (rank, k) == (2, 90)).given(JudgeConvergence)
    assert judgement.verdict == "harmless"
    (judgement,) = skipping(140, lambda rank, k: (rank, k) == (1, 50), loss=3.0).given(JudgeConvergence)
    assert (judgement.verdict, judgement.limit) == ("harmful", pytest.approx(1.05))


def test_a_job_that_starts_with_a_relaxed_barrier_reports_that_nothing_can_be_judged() -> None:
    told = guarded(synchronization={"barrier": "asp"}).run()
    (judgement,) = told.story.given(JudgeConvergence)
    assert (judgement.verdict, judgement.reverts) == ("unknown", False)
    assert "the job began with them" in judgement.reason


REFERENCE = 20
"""Global batches that the guard needs before the batch may grow."""


def grown(tell: Callable[..., Attached], loss: float, mode: str = "revert", **changes: object) -> tuple[Attached, int]:
    """The batch of two ranks has grown from 64 to 128, and the loss is another from then on; where the pass goes on."""
    guard = {"mode": mode, "reference": REFERENCE, "judge_within": 24}
    story = tell(fill=FILL, guard=guard, **changes).submitted()
    for rank in (0, 1):
        story.comes(rank, scales_lr=True, sample_count=PASS)
    at = iterate(story, range(PASS // 64), 32, 32, begin=0)
    assert story.orders[0].fill_batch == 128
    return story, iterate(story, range(PASS // 64, PASS // 64 + 40), 64, 64, begin=at, loss=loss)


def test_a_larger_global_batch_that_harms_is_taken_back(tell: Callable[..., Attached]) -> None:
    story, at = grown(tell, 2.0)
    (judgement,) = story.given(JudgeConvergence)
    assert (judgement.verdict, judgement.grown_from, judgement.reverts) == ("harmful", 64, True)
    assert (judgement.measured, judgement.expected) == (pytest.approx(2.0), pytest.approx(1.0))
    assert judgement.batches <= 24
    assert judgement.reason.startswith("global batch 128 instead of 64: ")
    assert judgement.reason.endswith("the ranks take 64 samples again from their next pass on, and no more than that")
    assert {story.orders[rank].fill_batch for rank in (0, 1)} == {64}
    at = -(-at // PASS) * PASS
    iterate(story, range(80, 110), 32, 32, begin=at)
    assert story.job.batch == sum(story.orders[0].shares) == story.orders[0].fill_batch == 64
    assert story.given(SetShares)[-1].reason.endswith("the script has 64: learning rates are multiplied by 1")
    assert len(story.given(JudgeConvergence)) == 1
    story.engine.validate()


def test_a_larger_global_batch_without_harm_stays_and_then_grows_on(tell: Callable[..., Attached]) -> None:
    story, _ = grown(tell, 1.0)
    (judgement,) = story.given(JudgeConvergence)
    assert (judgement.verdict, judgement.grown_from, judgement.reverts) == ("harmless", 64, False)
    assert (story.job.batch, story.orders[0].fill_batch) == (128, 256)


def test_a_guard_that_suggests_leaves_the_larger_batch(tell: Callable[..., Attached]) -> None:
    story, _ = grown(tell, 2.0, "suggest")
    (judgement,) = story.given(JudgeConvergence)
    assert (judgement.verdict, judgement.grown_from, judgement.reverts) == ("harmful", 64, False)
    assert (story.job.batch, story.job.attachment.most_batch) == (128, 0)


def test_the_last_short_iteration_of_a_pass_is_no_smaller_batch(tell: Callable[..., Attached]) -> None:
    story, at = grown(tell, 2.0)
    at = (at // PASS + 1) * PASS - 64
    iterate(story, range(80, 81), 32, 32, begin=at)
    assert story.job.batch == 128
    iterate(story, range(81, 83), 32, 32, begin=at + 64)
    assert story.job.batch == 64


def test_with_a_guard_the_batch_grows_only_when_that_could_be_judged(tell: Callable[..., Attached]) -> None:
    story = tell(fill=FILL, guard={"reference": REFERENCE}).submitted()
    for rank in (0, 1):
        story.comes(rank, scales_lr=True, sample_count=PASS)
    at = iterate(story, range(REFERENCE - 1), 32, 32, begin=0)
    assert story.orders[0].fill_batch == 0
    iterate(story, range(REFERENCE - 1, REFERENCE + 2), 32, 32, begin=at)
    assert story.orders[0].fill_batch == 128


def test_without_a_loss_the_batch_stays_and_the_user_is_notified(tell: Callable[..., Attached]) -> None:
    story = tell(fill=FILL, guard={"reference": REFERENCE}).submitted()
    for rank in (0, 1):
        story.comes(rank, scales_lr=True, sample_count=PASS)
    iterate(story, range(40), 32, 32, begin=0, loss=0.0)
    assert story.orders[0].fill_batch == 0
    (flag,) = [each for each in story.given(RaiseFlag) if each.kind == "guard"]
    assert flag.reason == (
        "the global batch stays 64: the guard finds no training loss above 0 to compare; call pacer.step(loss)"
    )


def noisy(tell: Callable[..., Attached], scale: float, mode: str, iterations: int = 40) -> Attached:
    """A job of 64 samples in an iteration, whose ranks report that gradient-noise scale."""
    story = tell(fill=FILL, guard={"mode": mode, "reference": REFERENCE, "judge_within": 24}).submitted()
    for rank in (0, 1):
        story.comes(rank, scales_lr=True, sample_count=PASS)
    for iteration in range(iterations):
        for rank in (0, 1):
            where = {"samples": 32, "position": 64 * iteration + 32 * rank, "memory": 0.3}
            story.report(rank, iteration, compute_s=0.1, noise_scale=scale, **where)
    return story


def test_the_batch_does_not_grow_far_above_the_gradient_noise_scale(tell: Callable[..., Attached]) -> None:
    story = noisy(tell, 50.0, "revert")
    assert story.orders[0].fill_batch == 0
    (flag,) = [each for each in story.given(RaiseFlag) if each.kind == "noise"]
    assert flag.reason == (
        "the global batch stays 64: 128 is more than 2 times the gradient-noise scale, 50 samples; of more samples in"
        " each iteration hardly fewer iterations are needed"
    )


def test_a_scale_that_fluctuates_about_the_limit_makes_one_finding_and_one_that_rises_ends_it(
    tell: Callable[..., Attached],
) -> None:
    story = noisy(tell, 50.0, "revert")
    for iteration, scale in enumerate([63.0, 66.0, 62.0, 70.0, 85.0], 40):
        for rank in (0, 1):
            where = {"samples": 32, "position": 64 * iteration + 32 * rank, "memory": 0.3}
            story.report(rank, iteration, compute_s=0.1, noise_scale=scale, **where)
        assert story.orders[0].fill_batch == (128 if scale == 85.0 else 0)
    assert [each.kind for each in story.given(RaiseFlag)] == ["noise"]
    assert len(story.given(CloseFlag)) == 1


def test_a_guard_that_suggests_reports_what_the_noise_scale_is_and_the_batch_grows(
    tell: Callable[..., Attached],
) -> None:
    story = noisy(tell, 50.0, "suggest")
    assert story.orders[0].fill_batch == 128
    (flag,) = [each for each in story.given(RaiseFlag) if each.kind == "noise"]
    assert flag.reason.startswith("a global batch of 128 is more than 2 times the gradient-noise scale, 50 samples")


def test_a_judgement_of_a_larger_batch_has_the_noise_scale_in_its_evidence(tell: Callable[..., Attached]) -> None:
    story = noisy(tell, 200.0, "revert", PASS // 64)
    assert story.orders[0].fill_batch == 128
    iterate(story, range(PASS // 64, PASS // 64 + 40), 64, 64, begin=PASS, loss=2.0)
    (judgement,) = story.given(JudgeConvergence)
    assert "; the gradient-noise scale is 200 samples; the ranks take 64 samples again" in judgement.reason


def test_ranks_that_begin_again_grow_to_the_bound_of_the_guard_at_most(tell: Callable[..., Attached]) -> None:
    story, at = grown(tell, 1.0)
    iterate(story, range(80, 150), 128, 128, begin=-(-at // PASS) * PASS, loss=3.0)
    assert story.job.attachment.most_batch == 128
    for rank in (0, 1):
        story.drops(rank)
    for rank in (0, 1):
        story.comes(rank, scales_lr=True, sample_count=PASS)
    assert (story.job.batch, story.orders[0].fill_batch) == (64, 0)
    at = iterate(story, range(150, 175), 32, 32, begin=story.orders[0].begins)
    assert story.orders[0].fill_batch == 128
    iterate(story, range(175, 240), 64, 64, begin=-(-at // PASS) * PASS)
    assert story.job.batch == story.orders[0].fill_batch == 128


@pytest.mark.parametrize("changes", [{"launch": "attached"}, {"communication": "all-reduce", "servers": 0}])
def test_a_guard_is_refused_where_nothing_that_it_judges_can_change(changes: dict[str, object]) -> None:
    document = {"name": "a", "workload": "wine", "workers": 2, "batch_size": 8, "stop": {"iterations": 9}}
    with pytest.raises(SpecError) as raised:
        parse_spec(document | {"guard": "revert"} | changes)
    assert raised.value.field == "guard"
    assert raised.value.expected.endswith("leave it out")
