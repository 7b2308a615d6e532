"""Changes to a running job: other policies, pause and resume. Each takes effect at an iteration boundary.

Other policies begin a new generation. If the present barrier is synchronous, it begins with the iteration after the
open one. From one asynchronous barrier to another it begins at once, each worker at its own next boundary. From
asynchronous to synchronous every worker first stops at its next boundary. The change is *pending* until all have
stopped; then the generation begins after the furthest of them, and the skipped iteration numbers need no reports. No
update is lost in any of these cases: what a worker has pushed was applied or stays in its open iteration.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controlplane.core import granting, membership, placing, recovery, sharing
from controlplane.core.barriers import includes_all_workers
from controlplane.core.choices import Partitioned
from controlplane.core.combinations import conflict, misfit, unsuited
from controlplane.core.commands import ChangePolicies, DeclineRequest, MoveJob
from controlplane.core.context import Context, EventRefused
from controlplane.core.events import ChangeRequested, PauseRequested, ResumeRequested
from controlplane.core.state import End, Job, Round, Updates
from controlplane.core.states import JOB_OVER, JobState, Worker
from controlplane.protocol.messages import Quiesced
from controlplane.protocol.spec import CHOICES, Choice

TOGETHER: Final = ("batching", "barrier", "data")
"""Kinds of policies that may contradict each other."""

AFTER_STOP: Final = ": every worker has stopped"
"""Ends the reason of a change that waited for all workers to stop."""


def on_change_requested(context: Context, event: ChangeRequested) -> None:
    """Adopt other policies, now or once every worker has stopped."""
    job = context.job
    request = f"job {job.number}: change by {event.actor}"
    if job.state in JOB_OVER or job.state is JobState.FINISHING or context.mode.is_ending(job):
        raise EventRefused(f"{request}, but it is {job.state} and starts no further iteration")
    choices = {**job.requests.choices, **event.choices}
    choices = {question: choice for question, choice in choices.items() if _current(job, question, request) != choice}
    if not choices and not job.requests.choices:
        raise EventRefused(f"{request}, but it already runs with these policies")
    policies = _resolve(context, choices, request)
    _check_together(context, policies, request)
    if "placement" in policies and job.generation.number:
        _check_placement(context, policies["placement"], request)
    if "data" in policies and job.generation.number:
        _check_data(context, policies["data"], request)
    barrier = policies.get("barrier", context.chosen.barrier)
    if (found := misfit(context.spec, barrier)) is not None:
        raise EventRefused(f"{request}: {found[0]} is {found[1]}, expected {found[2]}")
    if job.generation.number and context.chosen.async_barrier is not None and barrier.synchronous:
        job.requests.choices, job.requests.actor = choices, event.actor
        granting.hold(context, f"{_summary(choices)}, requested by {event.actor}: after every worker has stopped")
        return
    job.requests.choices = {}
    if not choices:
        granting.release(context, f"{event.actor} withdrew the change")
        return
    first = _first_iteration(context)
    if context.mode.ends_together and job.end.stop_at is not None and first >= job.end.stop_at:
        raise EventRefused(
            f"{request} would begin with iteration {first}, but it ends before iteration {job.end.stop_at}"
        )
    job.requests.actor = event.actor
    _install(context, choices, policies, first, f"{_summary(choices)}, requested by {event.actor}")


def attempt(context: Context, actor: str, choices: dict[str, Choice], *, failing: str) -> bool:
    """Request the change on behalf of ``actor``; True if the job adopts it. If not, nothing changes, and the reason is
    recorded after ``failing``.
    """
    try:
        on_change_requested(context, ChangeRequested(actor=actor, choices=choices))
    except EventRefused as refusal:
        context.emit(DeclineRequest, f"{failing}: {refusal}", actor=actor)
        return False
    return True


def on_pause_requested(context: Context, event: PauseRequested) -> None:
    """Every worker stops at its next boundary, until the job is resumed."""
    job = context.job
    if job.state not in (JobState.RUNNING, JobState.PAUSED) or "operator" in job.pauses:
        raise EventRefused(f"job {job.number}: pause by {event.actor}, but it is {job.state}")
    granting.pause(context, "operator", f"paused by {event.actor}")


def on_resume_requested(context: Context, event: ResumeRequested) -> None:
    """The workers continue, unless another cause still pauses them."""
    job = context.job
    request = f"job {job.number}: resumption by {event.actor}"
    if job.state is not JobState.PAUSED:
        raise EventRefused(f"{request}, but it is {job.state}")
    causes: list[granting.Cause] = ["operator", "checkpoint", "policy"]
    mine = [cause for cause in causes if cause in job.pauses]
    if not mine:
        raise EventRefused(f"{request}, but {'; '.join(job.pauses.values())}: it resumes by itself")
    if "policy" in mine:
        mine.remove("policy")
        _restart_batching(context, f"resumed by {event.actor}")
    for cause in mine:
        granting.lift(context, cause, f"resumed by {event.actor}")


def _restart_batching(context: Context, reason: str) -> None:
    """Restart the failed batching policy in a new generation, with an empty state."""
    job = context.job
    context.chosen.batching_state = None
    sentence = f"{reason}: batching {job.synchronization.batching.name} restarts"
    membership.begin_generation(
        context, job.generation.roster, first_iteration=_first_iteration(context), reason=sentence
    )


def on_quiesced(context: Context, worker: Worker, message: Quiesced) -> None:
    """A worker has stopped in response to this hold, not an earlier one."""
    job = context.job
    if job.hold.sequence is None or message.sequence < job.hold.sequence:
        return
    if message.iteration != worker.last_completed + 1:
        return
    worker.is_stopped = True


def settle(context: Context) -> None:
    """Once every worker has stopped, start what waits for that, or publish it; called after each event while workers
    are held.
    """
    job = context.job
    if job.hold.sequence is None or (job.hold.is_quiesced and not job.requests.choices):
        return
    if not job.generation.roster or not job.is_at_boundary:
        return
    if job.checkpoints.stage:
        if job.checkpoints.stage == "hold":
            recovery.begin_cut(context)
        return
    if job.requests.choices:
        choices, job.requests.choices = job.requests.choices, {}
        policies = _resolve(context, choices, f"job {job.number}")
        first = max((worker.last_completed for worker in job.counting), default=job.round.completed) + 1
        if job.state is not JobState.PAUSED:
            job.release_hold()
        who = f", requested by {job.requests.actor}" if job.requests.actor else ""
        _install(context, choices, policies, first, f"{_summary(choices)}{who}{AFTER_STOP}")
        context.emit(MoveJob, "the change has taken effect", state=job.state, awaited=granting.awaited(job))
    elif job.state is JobState.PAUSED:
        job.hold.is_quiesced = True
        reason = f"{next(iter(job.pauses.values()))}; every worker has stopped"
        context.emit(MoveJob, reason, state=job.state, awaited=granting.awaited(job))


def _install(context: Context, choices: dict[str, Choice], policies: dict[str, Any], first: int, reason: str) -> None:
    job = context.job
    had_global_batch = context.mode.has_global_batch
    context.chosen.adopt(policies)
    job.synchronization = msgspec.structs.replace(job.synchronization, **choices)
    has_global_batch = context.mode.has_global_batch
    context.emit(
        ChangePolicies,
        reason,
        generation=job.generation.number + 1 if job.generation.number else 0,
        first_iteration=first,
        choices=choices,
    )
    if not job.generation.number:
        return
    if "barrier" in choices:
        _begin_barrier(job, first)
    if "data" in choices:
        sharing.withdraw_pieces(context, first)
    if had_global_batch and not has_global_batch:
        _become_asynchronous(job, first)
    elif has_global_batch and not had_global_batch:
        _become_synchronous(job, first)
    elif not has_global_batch:
        _shorten_leases(job)
    membership.begin_generation(context, job.generation.roster, first_iteration=first, reason=reason)
    if "placement" in choices:
        placing.adopt_policy(context, reason)


def _begin_barrier(job: Job, first: int) -> None:
    """Iterations before ``first`` finish under the barrier under which they began."""
    before = job.updates
    job.updates = Updates(
        apply_from=first,
        skip_to=before.skip_to,
        quorums={iteration: ranks for iteration, ranks in before.quorums.items() if iteration < first},
        late=before.late,
        late_until=before.late_until,
        missing=before.missing,
    )


def _shorten_leases(job: Job) -> None:
    """Grant only the iteration that each worker is in: the next one is under the new barrier."""
    for worker in job.counting:
        worker.watermark = min(worker.watermark, worker.last_completed + 1)
        sharing.drop_leases_after(job, worker, worker.watermark)


def _become_asynchronous(job: Job, first: int) -> None:
    """Workers finish iterations before ``first`` together; from there on each gets samples of its own."""
    assert job.spec is not None
    for worker in job.counting:
        worker.watermark = max(worker.last_completed, first - 1)
        worker.leases = []
    job.samples.cursor = job.samples.origin_position + (first - job.samples.origin_iteration) * job.width
    job.end = End()
    job.round = Round(completed=job.round.completed)


def _become_synchronous(job: Job, first: int) -> None:
    """All workers continue with ``first``, regardless of the iterations they had reached."""
    assert job.spec is not None
    for worker in job.counting:
        sharing.drop_leases_after(job, worker, worker.done)
        worker.done = worker.watermark = worker.granted = first - 1
        worker.skip_to = first
    job.updates.skip_to = first
    job.round = Round(completed=first - 1)
    job.samples.origin_iteration, job.samples.origin_position = first, job.samples.cursor
    job.end.stop_at = None
    left = sharing.samples_left(job)
    if left is not None:
        job.end.stop_at = first + max(1, -(-left // job.batch))
        job.end.reason = f"samples for {job.spec.stop.iterations} iterations were requested"


def _first_iteration(context: Context) -> int:
    """The first iteration of the new generation; its barrier grants no earlier one."""
    job = context.job
    if not job.generation.number:
        return 0
    return context.mode.first_of_change(job)


def _current(job: Job, question: str, request: str) -> Choice:
    if question not in CHOICES:
        raise EventRefused(f"{request}: there is no {question} policy, only {', '.join(CHOICES)}")
    choice: Choice = getattr(job.synchronization, question)
    return choice


def _resolve(context: Context, choices: dict[str, Choice], request: str) -> dict[str, Any]:
    try:
        return {question: context.chosen.resolve(question, choice) for question, choice in choices.items()}
    except ValueError as error:
        raise EventRefused(f"{request}: {error}") from None


def _check_together(context: Context, policies: Mapping[str, Any], request: str) -> None:
    together = {question: policies.get(question, getattr(context.chosen, question)) for question in TOGETHER}
    if (reason := conflict(**together)) is not None:
        raise EventRefused(f"{request}: {reason}")
    if not context.mode.owns_loop and (other := policies.keys() - {"batching"}):
        cure = "submit a native job for that (launch: native)"
        raise EventRefused(f"{request}: {', '.join(sorted(other))} of an attached job stays as it is; {cure}")
    if (found := unsuited(context.spec, **together)) is not None:
        raise EventRefused(f"{request}: {found[0]} is {found[1]}, expected {found[2]}")
    if context.spec.server_mode == "aggregating" and not includes_all_workers(together["barrier"]):
        name = together["barrier"].name
        raise EventRefused(f"{request}: {name} needs servers that hold the parameters; these only add up")


def _check_placement(context: Context, placement: Any, request: str) -> None:
    try:
        placing.wanted_by(context, placement)
    except ValueError as error:
        raise EventRefused(f"{request}: {error}") from None


def _check_data(context: Context, data: Any, request: str) -> None:
    try:
        if isinstance(data, Partitioned):
            data.partition(context.job.samples.count, context.job.generation.roster or [0])
    except ValueError as error:
        raise EventRefused(f"{request}: {error}; leave out workers, or keep data: shared") from None


def _summary(choices: dict[str, Choice]) -> str:
    return ", ".join(f"{question} becomes {choice.name}" for question, choice in choices.items())
