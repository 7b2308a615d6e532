"""The guard of a job: shows it the training loss by global batches, and goes back where a change harms convergence.

A change is judged if its barrier is not plain lockstep, or workers draw from splits of their own: then an update is
made of old parameters, or of other samples than an even draw gives. A global batch that ``fill`` made larger is judged
likewise: fewer updates are made of the same samples. Shares alone do not change what is learned.
"""

from typing import Final

from controlplane.core import changes, filling
from controlplane.core.commands import JudgeConvergence
from controlplane.core.context import Context
from controlplane.core.states import JobState
from controlplane.core.supervisors import GUARD, ConvergenceGuard, Judgement

GUARDED: Final = ("barrier", "data")
"""Choices that decide what an update is made of."""


def review(context: Context) -> None:
    """Show it what has happened since it was last shown something; called after every entry."""
    job, guard, guarded = context.job, context.chosen.guard, context.job.guarded
    assert guard is not None
    if job.state is not JobState.RUNNING or not job.generation.roster:
        return
    if guarded.present != job.synchronization:
        _note_change(context, guard)
    if guarded.batch != job.batch:
        _note_batch(context, guard)
    guarded.finish(job.round.completed)
    if guarded.pending < job.batch:
        return
    loss, state = guarded.take_batch(), context.chosen.guard_state
    context.chosen.guard_state, judgement = guard.observe(guarded.samples, loss, state)
    if judgement is not None:
        _take(context, judgement)


def _note_change(context: Context, guard: ConvergenceGuard) -> None:
    """Other policies hold than those that it knows of; or the records begin anew, since samples are repeated."""
    job, guarded, chosen = context.job, context.job.guarded, context.chosen
    known, guarded.present = guarded.present, job.synchronization
    if known is None:
        chosen.guard_state = guard.restored(chosen.guard_state)
        if _is_relaxed(context):
            since = "samples are repeated since a checkpoint" if guarded.before else "the job began with them"
            reason = f"cannot judge whether the relaxed policies harm convergence: {since}"
            _take(context, Judgement(verdict="unknown", batches=0, reason=reason))
        return
    if not known.changes_to(job.synchronization, GUARDED):
        return
    guarded.take_batch()
    if not _is_relaxed(context):
        guarded.before = None
        chosen.guard_state = guard.restored(chosen.guard_state)
        return
    guarded.before = guarded.before or known
    chosen.guard_state, judgement = guard.relaxed(chosen.guard_state)
    if judgement is not None:
        _take(context, judgement)


def _note_batch(context: Context, guard: ConvergenceGuard) -> None:
    """The global batch has another size than the one that it knows of."""
    job, guarded, chosen = context.job, context.job.guarded, context.chosen
    known, guarded.batch = guarded.batch, job.batch
    if not known or context.spec.fill is None:
        return
    guarded.take_batch()
    if job.batch < known:
        guarded.smaller = 0
        chosen.guard_state = guard.restored(chosen.guard_state)
        return
    guarded.smaller = guarded.smaller or known
    chosen.guard_state, judgement = guard.relaxed(chosen.guard_state)
    if judgement is not None:
        _take(context, judgement)


def _take(context: Context, judgement: Judgement) -> None:
    job, guarded, spec = context.job, context.job.guarded, context.spec
    assert spec.guard is not None
    before, guarded.before = guarded.before, None
    smaller, guarded.smaller = guarded.smaller, 0
    is_harmful, acts = judgement.verdict == "harmful", spec.guard.mode == "revert"
    choices = job.synchronization.changes_to(before, GUARDED) if is_harmful and before is not None else {}
    reverts = acts and (bool(choices) or (is_harmful and smaller > 0))
    reason = judgement.reason
    if smaller:
        reason = f"global batch {job.batch} instead of {smaller}: {reason}"
        if (scale := filling.noise_scale(context)) is not None:
            reason = f"{reason}; the gradient-noise scale is {scale:.3g} samples"
    if smaller and reverts:
        job.attachment.most_batch = smaller
        reason = f"{reason}; the ranks take {smaller} samples again from their next pass on, and no more than that"
    context.emit(
        JudgeConvergence,
        reason,
        iteration=max(0, job.round.completed),
        verdict=judgement.verdict,
        batches=judgement.batches,
        measured=judgement.measured,
        expected=judgement.expected,
        limit=judgement.limit,
        choices=choices,
        grown_from=smaller,
        reverts=reverts,
    )
    if reverts and choices:
        changes.attempt(context, GUARD, choices, failing="the guard cannot restore the earlier policies")


def _is_relaxed(context: Context) -> bool:
    chosen = context.chosen
    return chosen.async_barrier is not None or chosen.is_partial or chosen.partitioned is not None
