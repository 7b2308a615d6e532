"""Reports and complete iterations, and what follows from them: observations, shares and releases.

Each complete iteration is passed once to the batching policy, the detector and the placement policy. In asynchronous
modes a round of as many reports as there are workers takes its place.

A job of ten thousand workers reports ten thousand times per iteration, and the engine decides once, when the last
report is in. A driver that has an earlier report of the iteration may write it into the ``Ledger``, without an entry
and a context. The ledger changes the job exactly as ``conversation`` and ``on_report`` would, to the byte of a snapshot
(``tests/core/test_ledger.py``); it refuses any report from which more could follow.

If workers sample their peers, some may not be reachable by others. A worker that reaches no other waits, and delays
those that wait for it. A worker that is not reached delays no other: the others continue without it, so a flag reports
that the barrier no longer includes it.
"""

import math
from collections.abc import Iterable, Mapping

from msgspec import UNSET

from controlplane.core import filling, granting, ordering, placing, recovery, sharing
from controlplane.core.choices import Observation
from controlplane.core.context import Context, Policies, flag_key
from controlplane.core.state import Job, Round
from controlplane.core.states import JOB_OVER, READY, JobState, Worker
from controlplane.protocol.messages import Evaluation, IterationReport

WARM_UP_REPORTS = 2
"""The first iterations of a process, which predictors and detectors ignore."""

STEADY = 1.25
"""A rank's second iteration counts if its time per sample was at most this many times that of the first, which includes
all one-time costs: then none of them are left in the second.
"""

SMOOTHING = 0.2
"""Weight of the newest iteration in the smoothed iteration time."""


def on_report(context: Context, worker: Worker, report: IterationReport) -> None:
    """A worker has finished an iteration."""
    job, policies, iteration = context.job, context.chosen, report.iteration
    if (report.spoilt or job.flags.open) and not _take_loss(context, worker, report):
        return
    job.advance(worker, iteration)
    # A revoked grant may have been used before the worker received the revocation.
    if worker.watermark < iteration:
        worker.watermark = iteration
    worker.done_ms = context.now_ms
    worker.reports += 1
    worker.ceiling = report.ceiling
    if report.moving_s > 0.0:
        placing.note_pause(job, worker, report)
    mode = policies.mode
    if _is_measured(worker, report):
        mode.seen(job, iteration)[worker.index] = _observation(worker, report)
        sharing.note_draw(context, worker, report)
        if report.exchanges:
            mode.exchanges(job, iteration).extend(placing.transfers_of(worker, report))
    sharing.note_processed(context, worker, report)
    if policies.pilot is not None:
        job.piloted.samples += report.samples
    if policies.guard is not None:
        tally = job.guarded if context.spec.fill is None else job.guarded.of_iteration(iteration)
        tally.add(report, job.generation.shares.get(worker.index, 0))
    if not context.mode.owns_loop:
        job.attachment.note_end(iteration, report.position + report.samples)
        if report.noise_scale is not UNSET and context.spec.fill is not None:
            job.attachment.noise[worker.index] = report.noise_scale
    if report.unanswered or job.flags.unanswered:
        _note_unanswered(context, worker, report)
    if policies.async_barrier is not None:
        if granting.on_arrival(context, worker, report):
            _count_round(context)
    elif policies.is_partial:
        granting.on_partial_report(context, worker, report)
    complete(context)
    if not mode.keeps_versions and recovery.checkpoint_is_due(context):
        recovery.hold_for_checkpoint(context)


def _is_measured(worker: Worker, report: IterationReport) -> bool:
    """Whether a report is after its process's warm-up."""
    if report.samples <= 0 or worker.reports > WARM_UP_REPORTS or worker.rank is None:
        return report.samples > 0 and worker.reports > WARM_UP_REPORTS
    if worker.reports == 1:
        worker.rank.first = report
    first = worker.rank.first
    if worker.reports == 1 or first is None:
        return False
    return 0.0 < report.processing_s / report.samples <= STEADY * first.processing_s / first.samples


def _take_loss(context: Context, worker: Worker, report: IterationReport) -> bool:
    """A loss that is not a number ends the job, unless its spec skips such updates."""
    if not report.spoilt:
        if flag_key("loss", "worker", worker.index) in context.job.flags.open:
            context.close_flag(worker.index, "loss", f"the loss of {worker.title} is a number again")
        return True
    found = f"the loss of {worker.title} in iteration {report.iteration} is {report.spoilt}"
    if not context.mode.owns_loop:
        evidence = {"iteration": report.iteration}
        context.open_flag(worker.index, "loss", "transient", f"{found}: the script continues", evidence)
        return True
    if context.spec.on_nan == "skip":
        evidence = {"iteration": report.iteration}
        context.open_flag(worker.index, "loss", "transient", f"{found}: its update is left out", evidence)
        return True
    good = recovery.last_good(context.job)
    context.end_job(JobState.FAILED, f"{found}; {good}; {recovery.DIVERGED}")
    return False


def complete(context: Context) -> None:
    """Process the iterations that every counting worker has now reported, and let the workers continue."""
    job = context.job
    if job.round.behind > 0 or not job.generation.roster or job.state in JOB_OVER:
        return
    reached = job.reached()
    if reached <= job.round.completed:
        job.recount()
        return
    if not context.mode.has_global_batch:
        job.round.completed = reached
        job.recount()
        return
    _measure(context, reached)
    changed = False
    observations: list[Observation] = []
    for iteration in sorted(number for number in job.round.observed if number <= reached):
        job.round.completed = iteration
        job.attachment.complete(iteration)
        seen = job.round.observed.pop(iteration)
        observations = [seen[rank] for rank in sorted(seen)]
        changed |= filling.review(context, observations)
        changed |= sharing.decide_shares(context, observations)
        transfers = job.round.transfers.pop(iteration, [])
        context.look(observations, transfers)
        placing.review_placement(context, transfers)
    job.round.completed = reached
    job.attachment.complete(reached)
    job.recount()
    if not context.mode.owns_loop and not observations and (first := _first_reports(job)):
        changed |= sharing.decide_provisionally(context, first)
    granting.close_partial(context)
    sharing.close_data(context, observations)
    if job.state in JOB_OVER:
        return
    _release(context, changed=changed)


def _first_reports(job: Job) -> list[Observation]:
    """What attached ranks have reported, if that is one iteration each; otherwise empty."""
    members = [job.workers[rank] for rank in job.generation.roster]
    if any(each.reports != 1 for each in members):
        return []
    first = [_observation(each, each.rank.first) for each in members if each.rank is not None and each.rank.first]
    return first if len(first) == len(members) else []


def on_evaluation(context: Context, evaluation: Evaluation) -> None:
    """A version of the parameters was evaluated: pass it to the guard, and check the target."""
    chosen = context.chosen
    if chosen.guard is not None:
        loss = math.inf if evaluation.loss is None else evaluation.loss
        chosen.guard_state = chosen.guard.evaluated(loss, chosen.guard_state)
    target = context.spec.stop.accuracy
    if target is None or evaluation.accuracy is None or evaluation.accuracy < target:
        return
    reached = f"accuracy {evaluation.accuracy:.4f} after iteration {evaluation.iteration}, asked for {target:g}"
    granting.stop_soon(context, reached)


def _count_round(context: Context) -> None:
    """Shares and flags are evaluated once per round, with each worker's latest report in it."""
    job, done = context.job, context.job.round
    done.reports += 1
    if done.reports < len(job.generation.roster):
        return
    job.round = Round(completed=done.completed, behind=done.behind)
    observations = [done.recent[rank] for rank in sorted(done.recent)]
    paces = [(job.generation.shares[rank], job.workers[rank].pace_s) for rank in job.generation.roster]
    job.pace.speed = sum(share / pace_s for share, pace_s in paces if pace_s > 0)
    sharing.decide_shares(context, observations)
    sharing.rebalance(context, observations)
    context.look(observations, done.recent_transfers)
    placing.review_placement(context, done.recent_transfers)


def _release(context: Context, *, changed: bool) -> None:
    job = context.job
    every = context.chosen.batching.every_iteration and context.mode.grants_iterations
    lowest = min(job.workers[rank].watermark for rank in job.generation.roster)
    used_up = lowest - job.round.completed <= max(1, granting.lead(context) // 2)
    granted: Mapping[int, str] = granting.raise_watermarks(context) if used_up or every else {}
    if not (granted or changed or every):
        return
    if job.end.stop_at is not None and job.round.completed + 1 >= job.end.stop_at:
        return
    reason = f"iteration {job.round.completed} is complete"
    ordering.issue_all(context, reason, of_rank=granted)


def _measure(context: Context, reached: int) -> None:
    job = context.job
    if job.round.completed_ms and job.round.completed >= 0:
        took_s = (context.now_ms - job.round.completed_ms) / 1000 / (reached - job.round.completed)
        job.pace.iteration_s += (took_s - job.pace.iteration_s) * (SMOOTHING if job.pace.iteration_s else 1.0)
    job.round.completed_ms = context.now_ms


def _observation(worker: Worker, report: IterationReport) -> Observation:
    return Observation(
        rank=worker.index,
        iteration=report.iteration,
        samples=report.samples,
        compute_s=report.processing_s,
        communication_s=report.push_s + report.pull_s,
        waiting_s=report.waiting_s,
        cpu=report.cpu,
        memory=report.memory,
    )


UNANSWERED = "unanswered"


def _note_unanswered(context: Context, worker: Worker, report: IterationReport) -> None:
    """A worker reports the ranks without which it continues."""
    known = context.job.flags.unanswered
    for rank in sorted({*known, *report.unanswered}):
        asking = [other for other in known.get(rank, []) if other != worker.index and context.job.counts(other)]
        if rank in report.unanswered:
            asking = sorted([*asking, worker.index])
        if asking and context.job.counts(rank):
            known[rank] = asking
            _flag_unanswered(context, context.job.workers[rank], asking)
        elif rank in known:
            del known[rank]
            context.close_flag(rank, UNANSWERED, "every worker that samples it has its answers again")


def _flag_unanswered(context: Context, silent: Worker, asking: list[int]) -> None:
    titles = [context.job.workers[rank].title for rank in asking]
    hosts = ", ".join(sorted({context.job.workers[rank].host for rank in asking}))
    sentence = (
        f"{silent.title} does not answer {', '.join(titles)}, which asked how far it is: the barrier no longer keeps "
        f"them within its bound of {silent.title}. Let {hosts} reach {silent.host} at port {silent.port}, "
        "or change the barrier to sampling: central"
    )
    context.open_flag(silent.index, UNANSWERED, "lasting", sentence, {"asked_by": titles})


LOSS = "loss:"
"""Prefix of the keys of flags that a report with a finite loss closes."""


Row = tuple[int, str, int, int, int, int, float, float, float, float, float]
"""The fields of a report: rank, instance, number, generation, the log's clock, samples, and measurements: seconds of
compute, communication and waiting, CPU and memory.
"""


class Ledger:
    """Records reports until the engine handles another entry: it must not be used after that."""

    __slots__ = ("_job", "iteration")

    def __init__(self, job: Job) -> None:
        self._job = job
        self.iteration = job.round.completed + 1

    @property
    def missing(self) -> int:
        """How many more reports complete the open iteration."""
        return self._job.round.behind

    def note(self, iteration: int, rows: Iterable[Row]) -> int:
        """Record reports of ``iteration`` that have a loss and no data beyond these numbers; return how many were
        recorded.

        The first one that is not recorded has changed nothing: its entry must be handled.
        """
        job, current, noted = self._job, self._job.round, 0
        if iteration != self.iteration:
            return 0
        workers, shares, newest = job.workers, job.generation.shares, job.generation.number
        behind, processed = current.behind, 0
        seen = current.observed.get(iteration)
        for row in rows:
            rank, instance, number, generation, at_ms, samples, compute_s, communication_s, waiting_s, cpu, memory = row
            worker = workers[rank]
            if (
                behind < 2
                or worker.done >= iteration
                or worker.last_number != number - 1
                or worker.instance != instance
                or worker.state is not READY
                or worker.from_iteration > iteration
                or worker.granted < iteration
                or generation > newest
                or rank not in shares
            ):
                break
            worker.last_number = number
            worker.seen_ms = worker.done_ms = at_ms
            worker.done = iteration
            if worker.watermark < iteration:
                worker.watermark = iteration
            worker.ceiling = None
            reports = worker.reports = worker.reports + 1
            if reports > WARM_UP_REPORTS and samples > 0:
                if seen is None:
                    seen = current.observed.setdefault(iteration, {})
                seen[rank] = Observation(
                    rank=rank,
                    iteration=iteration,
                    samples=samples,
                    compute_s=compute_s,
                    communication_s=communication_s,
                    waiting_s=waiting_s,
                    cpu=cpu,
                    memory=memory,
                )
            behind -= 1
            noted += 1
            processed += samples
        if noted:
            current.behind = behind
            current.processed[iteration] = current.processed.get(iteration, 0) + processed
        return noted


def open_ledger(job: Job, policies: Policies | None) -> Ledger | None:
    """The ledger of the open iteration; None if any report may cause a command."""
    if policies is None or job.spec is None or not policies.mode.owns_loop or job.state is not JobState.RUNNING:
        return None
    if policies.pilot is not None or policies.guard is not None:
        return None  # both receive every report
    if policies.is_metered:
        return None  # rows have no joules
    if policies.async_barrier is not None or policies.is_partial or policies.partitioned is not None:
        return None
    if job.forgot or job.hold.sequence is not None or job.requests.join_at is not None:
        return None
    if job.refilling.current is not None or any(key.startswith(LOSS) for key in job.flags.open):
        return None
    return Ledger(job)
