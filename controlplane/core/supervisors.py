"""The autopilot and the convergence guard of a job: their inputs, and the changes that they make.

**Autopilot.** It gets every global batch, requests simulations of other policies, and switches to better ones or
proposes them. The result of a simulation enters as an event. So its decisions follow from the log like all others, and
a replay needs no simulation.

**Guard.** It gets the training loss of each global batch and the evaluations, and reverts changes that harm
convergence. It judges a change if the new barrier is not plain lockstep, or workers draw from their own splits: updates
are then computed from old parameters, or from samples that are not drawn evenly. It also judges a global batch that
``fill`` made larger, since the same samples then make fewer updates. Changes of shares alone do not affect what is
learned.
"""

from collections.abc import Mapping
from typing import Final

from controlplane.core import changes, filling
from controlplane.core.choices import GUARD, ConvergenceGuard, Judgement, Mark, Measured, Pilot, RequestSimulation
from controlplane.core.commands import (
    JudgeAlternatives,
    JudgeConvergence,
    MeasureSwitch,
    PlayAlternatives,
    SetAutopilot,
)
from controlplane.core.context import Context, EventRefused
from controlplane.core.events import AlternativesPlayed, AutopilotRequested
from controlplane.core.states import JobState
from controlplane.protocol.spec import Choice, Synchronization

ACTOR: Final = "autopilot"
"""The actor of the autopilot's changes."""

CHANGED: Final = ("batching", "barrier")
"""Kinds of policies that an autopilot changes; it leaves placement and data as they are."""


def review_autopilot(context: Context) -> None:
    """Pass on what has happened since the last call; called after every entry."""
    job, pilot = context.job, context.chosen.pilot
    assert pilot is not None
    piloted = job.piloted
    has_changed = piloted.present != job.synchronization
    batches = (piloted.samples - piloted.counted) // job.batch
    if job.state is not JobState.RUNNING or not job.generation.roster or job.hold.sequence is not None:
        return
    if has_changed:
        _note_switch(context, pilot)
    if not batches:
        return
    piloted.batches += batches
    piloted.counted += batches * job.batch
    mark, workers = _mark(context), len(job.generation.roster)
    context.chosen.pilot_state, action = pilot.observe(mark, workers, context.chosen.pilot_state)
    if isinstance(action, RequestSimulation):
        _request_simulation(context, pilot, action)
    elif isinstance(action, Measured):
        _take_measurement(context, pilot, action, mark)


def on_alternatives_played(context: Context, event: AlternativesPlayed) -> None:
    """A simulation is done: switch, propose, or stay."""
    job, pilot = context.job, _pilot(context)
    alternatives, mark = pilot.alternatives(context.spec), _mark(context)
    present = _name_of(job.piloted.present or job.synchronization, alternatives)
    played, state = list(event.played), context.chosen.pilot_state
    try:
        state, verdict = pilot.decide(event.look, present, played, event.error, mark, state)
    except ValueError as error:
        raise EventRefused(f"job {job.number}: {error}") from None
    context.chosen.pilot_state = state
    obstacle = _obstacle(context) or ("" if event.played else event.reason)
    target = alternatives.get(verdict.chosen) if not obstacle else None
    choices = job.synchronization.changes_to(target, CHANGED) if target is not None else {}
    context.emit(
        JudgeAlternatives,
        f"{present} stays: {obstacle}" if obstacle else verdict.reason,
        look=event.look,
        iteration=max(0, job.round.completed),
        present=present,
        chosen=verdict.chosen if choices else "",
        switches=verdict.switches and bool(choices),
        choices=choices,
        rows=verdict.rows,
    )
    if verdict.switches and choices:
        job.piloted.chosen = verdict.chosen
        _switch(context, pilot, choices, verdict.chosen, mark)
    elif obstacle and event.played:
        context.chosen.pilot_state = pilot.restarted(mark, context.chosen.pilot_state)
        _note_switch(context, pilot)


def on_autopilot_requested(context: Context, event: AutopilotRequested) -> None:
    """A user has set the mode."""
    pilot = _pilot(context)
    context.chosen.pilot_state = pilot.set_mode(event.mode, _mark(context), context.chosen.pilot_state)
    verb = "switches by itself" if event.mode == "auto" else "only proposes"
    context.emit(SetAutopilot, f"{event.actor}: the autopilot {verb} from now on", mode=event.mode)


def _obstacle(context: Context) -> str:
    """Why the job cannot act on the simulation now; empty if it can."""
    job = context.job
    if job.state is not JobState.RUNNING:
        return f"the job is {job.state}"
    if job.requests.choices:
        return "another change waits until every worker has stopped"
    if job.hold.sequence is not None:
        return "its workers are about to stop"
    if job.piloted.present != job.synchronization:
        return "its policies were changed in the meantime"
    return ""


def _pilot(context: Context) -> Pilot:
    pilot = context.chosen.pilot
    if pilot is None:
        cure = "submit a job with policy: auto or policy: suggest"
        raise EventRefused(f"job {context.job.number}: an event for an autopilot, but it has none; {cure}")
    return pilot


def _request_simulation(context: Context, pilot: Pilot, request: RequestSimulation) -> None:
    job, present = context.job, _present(context, pilot)
    others = pilot.alternatives(context.spec)
    context.emit(
        PlayAlternatives,
        request.reason,
        look=request.look,
        present=present,
        alternatives={**others, present: job.synchronization},
        since=job.piloted.since,
    )


def _take_measurement(context: Context, pilot: Pilot, measured: Measured, mark: Mark) -> None:
    job = context.job
    target = pilot.alternatives(context.spec).get(measured.came_from)
    back = job.synchronization.changes_to(target, CHANGED) if target is not None and not measured.kept else {}
    goes_back = bool(back) and pilot.switches(context.chosen.pilot_state)
    context.emit(
        MeasureSwitch,
        measured.reason,
        iteration=max(0, job.round.completed),
        name=measured.name,
        came_from=measured.came_from,
        before_s=measured.before_s,
        after_s=measured.after_s,
        predicted=measured.predicted,
        error=measured.error,
        kept=measured.kept,
        goes_back=goes_back,
    )
    if goes_back:
        job.piloted.chosen = measured.came_from
        _switch(context, pilot, back, measured.came_from, mark)


def _switch(context: Context, pilot: Pilot, choices: dict[str, Choice], name: str, mark: Mark) -> None:
    """Request the change as a user would; if the job cannot make it now, nothing changes."""
    if not changes.attempt(context, ACTOR, choices, failing=f"{name} is not possible now"):
        context.job.piloted.chosen = ""
        context.chosen.pilot_state = pilot.impossible(name, mark, context.chosen.pilot_state)


def _note_switch(context: Context, pilot: Pilot) -> None:
    """Other policies took effect: the autopilot's choice, a user's choice, or the first ones of the job.

    If the guard reverted a change, that change is not tried again soon, and the mode stays: no user has intervened.
    """
    job, piloted = context.job, context.job.piloted
    came_from, piloted.present = piloted.present, job.synchronization
    if came_from is None or not came_from.changes_to(job.synchronization, CHANGED):
        return
    piloted.since = job.generation.first_iteration
    present = _present(context, pilot)
    by_itself, piloted.chosen = piloted.chosen == present, ""
    before = _name_of(came_from, pilot.alternatives(context.spec))
    state = context.chosen.pilot_state
    switched = pilot.switches(state)
    is_taken_back = context.spec.guard is not None and job.requests.actor == GUARD
    state = pilot.switched(before, present, _mark(context), state, by_itself=by_itself or is_taken_back)
    if is_taken_back and came_from.barrier != job.synchronization.barrier:
        for name in _with_barrier(came_from.barrier, before, pilot.alternatives(context.spec)):
            state = pilot.impossible(name, _mark(context), state)
    context.chosen.pilot_state = state
    if switched and not pilot.switches(state):
        reason = f"{job.requests.actor or 'somebody'} changed {before} to {present}: the autopilot only proposes now"
        context.emit(SetAutopilot, reason, mode="suggest")


def _mark(context: Context) -> Mark:
    job = context.job
    began_ms = job.running_ms if job.running_ms is not None else context.now_ms
    paused_ms = job.paused_ms + (context.now_ms - job.since_ms if job.state is JobState.PAUSED else 0)
    return Mark(
        batches=job.piloted.batches,
        samples=job.piloted.samples,
        at_s=(context.now_ms - began_ms - paused_ms) / 1000,
    )


def _present(context: Context, pilot: Pilot) -> str:
    return _name_of(context.job.synchronization, pilot.alternatives(context.spec))


def _name_of(synchronization: Synchronization, known: Mapping[str, Synchronization]) -> str:
    """The name of these policies; if they are not among the autopilot's alternatives, the names of both."""
    found = (name for name, each in known.items() if not synchronization.changes_to(each, CHANGED))
    return next(found, f"{synchronization.batching.name}, {synchronization.barrier.name}, as set")


def _with_barrier(barrier: Choice, present: str, known: Mapping[str, Synchronization]) -> list[str]:
    """The present policies and all others with this barrier, since the barrier did the harm."""
    return [present, *(name for name, each in known.items() if each.barrier == barrier and name != present)]


GUARDED: Final = ("barrier", "data")
"""Kinds of policies that decide what an update is computed from."""


def review_guard(context: Context) -> None:
    """Pass on what has happened since the last call; called after every entry."""
    job, guard, guarded = context.job, context.chosen.guard, context.job.guarded
    assert guard is not None
    if job.state is not JobState.RUNNING or not job.generation.roster:
        return
    if guarded.present != job.synchronization:
        _note_relaxation(context, guard)
    if guarded.batch != job.batch:
        _note_batch(context, guard)
    guarded.finish(job.round.completed)
    if guarded.pending < job.batch:
        return
    loss, state = guarded.take_batch(), context.chosen.guard_state
    context.chosen.guard_state, judgement = guard.observe(guarded.samples, loss, state)
    if judgement is not None:
        _take_judgement(context, judgement)


def _note_relaxation(context: Context, guard: ConvergenceGuard) -> None:
    """The policies differ from those that the guard knows, or the records begin anew because samples are repeated."""
    job, guarded, chosen = context.job, context.job.guarded, context.chosen
    known, guarded.present = guarded.present, job.synchronization
    if known is None:
        chosen.guard_state = guard.restored(chosen.guard_state)
        if _is_relaxed(context):
            since = "samples are repeated since a checkpoint" if guarded.before else "the job began with them"
            reason = f"cannot judge whether the relaxed policies harm convergence: {since}"
            _take_judgement(context, Judgement(verdict="unknown", batches=0, reason=reason))
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
        _take_judgement(context, judgement)


def _note_batch(context: Context, guard: ConvergenceGuard) -> None:
    """The size of the global batch differs from the one that the guard knows."""
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
        _take_judgement(context, judgement)


def _take_judgement(context: Context, judgement: Judgement) -> None:
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
