"""Synchronous iterations that may close early: cut short (A-BSP), or made by the first updates (backup)."""

from collections.abc import Iterable, Mapping

from controlplane.core import ordering
from controlplane.core.barriers import Cut, Processed, Quorum
from controlplane.core.commands import CutIteration, NameQuorum, NoteMicroBatch, NoteUpdates
from controlplane.core.context import Context
from controlplane.core.processes import Worker
from controlplane.protocol.messages import Computed, IterationReport, MicroBatch, ProgressReport, ServerReport


def begin(context: Context, left: Mapping[int, int]) -> None:
    """A generation begins; ``left`` has the workers that no longer count, with their shares. Orders follow."""
    job, policies = context.job, context.chosen
    if policies.partial_barrier is not None:
        policies.barrier_state, cuts = policies.partial_barrier.begin(left, policies.barrier_state)
        for cut in cuts:
            _note_cut(context, cut)
    if policies.quorum_barrier is not None:
        policies.barrier_state, quorums = policies.quorum_barrier.appoint(
            list(job.generation.roster), job.updates.apply_from - 1, policies.barrier_state
        )
        for quorum in quorums:
            _note_quorum(context, quorum)


def on_progress(context: Context, worker: Worker, progress: ProgressReport) -> None:
    """A worker reports its progress within an iteration."""
    _observe(context, worker, progress.iteration, progress.samples_done, None)


def on_micro_batch(context: Context, worker: Worker, size: MicroBatch) -> None:
    """A worker has measured its micro-batch size for iterations that may be cut short."""
    compared = f"{size.overhead:.0%} longer than {size.whole} at once, as measured"
    context.emit(
        NoteMicroBatch,
        f"{worker.title} works in micro-batches of {size.samples} samples: {compared}",
        rank=worker.index,
        samples=size.samples,
        whole=size.whole,
        overhead=size.overhead,
    )


def on_computed(context: Context, worker: Worker, computed: Computed) -> None:
    """A worker's update is ready."""
    if computed.iteration <= worker.done:
        return
    _observe(context, worker, computed.iteration, computed.samples, None, finished=True)
    _name(context, worker, computed.iteration)


def on_report(context: Context, worker: Worker, report: IterationReport) -> None:
    """A worker has finished an iteration, and has certainly computed it."""
    _observe(context, worker, report.iteration, report.samples, report.loss, finished=True)
    _name(context, worker, report.iteration)


def note_updates(context: Context, report: ServerReport) -> None:
    """A server reports which updates it dropped or lacked; what another server reported already is not repeated."""
    job = context.job
    late = [
        (iteration, rank) for iteration, rank in sorted(report.late) if iteration > job.updates.late_until.get(rank, -1)
    ]
    missing = [each for each in sorted(report.missing) if each[0] > job.updates.missing.get(each[1], -1)]
    if not late and not missing:
        return
    job.updates.late = dict(job.updates.late)
    for iteration, rank in late:
        job.updates.late[rank] = job.updates.late.get(rank, 0) + 1
        job.updates.late_until = {**job.updates.late_until, rank: iteration}
    job.updates.missing = {**job.updates.missing, **{rank: iteration for iteration, rank in missing}}
    dropped = ", ".join(f"w{rank}" for rank in sorted({rank for _, rank in late}))
    lacks = ", ".join(f"w{rank} in iteration {iteration}" for iteration, rank in missing)
    parts = [f"{len(late)} updates of {dropped} came when others had made their iterations"] if late else []
    parts += (
        [f"not all blocks have an update of {lacks}, which it left: each divides by its own samples"] if lacks else []
    )
    context.emit(NoteUpdates, "; ".join(parts), late=job.updates.late, missing=missing)


def close(context: Context) -> None:
    """Iterations are complete: nothing more is decided about them."""
    job, policies = context.job, context.chosen
    if policies.partial_barrier is not None:
        policies.barrier_state = policies.partial_barrier.close(job.round.completed, policies.barrier_state)
    if policies.quorum_barrier is not None:
        policies.barrier_state = policies.quorum_barrier.close(job.round.completed, policies.barrier_state)
    if job.updates.quorums:
        job.updates.quorums = {
            number: ranks for number, ranks in job.updates.quorums.items() if number >= job.round.completed
        }


def _observe(
    context: Context, worker: Worker, iteration: int, samples: int, loss: float | None, *, finished: bool = False
) -> None:
    job, policies = context.job, context.chosen
    if policies.partial_barrier is None or iteration < job.updates.apply_from:
        return
    processed = Processed(
        rank=worker.index,
        iteration=iteration,
        samples=samples,
        requests=finished or samples >= job.generation.shares[worker.index],
        total=job.batch,
        loss=loss,
    )
    policies.barrier_state, cut = policies.partial_barrier.observe(processed, policies.barrier_state)
    if cut is not None:
        _note_cut(context, cut)
        _order_again(context, _not_done(context, cut.iteration), cut.reason)


def _name(context: Context, worker: Worker, iteration: int) -> None:
    job, policies = context.job, context.chosen
    if policies.quorum_barrier is None or iteration < job.updates.apply_from:
        return
    policies.barrier_state, quorum = policies.quorum_barrier.computed(worker.index, iteration, policies.barrier_state)
    if quorum is not None:
        late = _note_quorum(context, quorum)
        _order_again(context, late, quorum.reason)
        job.sequence += 1
        for server in job.live_servers:
            ordering.issue_server_orders(context, server, quorum.reason)


def _note_cut(context: Context, cut: Cut) -> None:
    job = context.job
    job.updates.cut = cut.iteration if job.updates.cut is None else max(job.updates.cut, cut.iteration)
    context.emit(CutIteration, cut.reason, iteration=cut.iteration, processed=cut.processed, total=cut.total)


def _note_quorum(context: Context, quorum: Quorum) -> list[Worker]:
    """Workers that are not named need not report that iteration any more."""
    job = context.job
    job.updates.quorums[quorum.iteration] = quorum.ranks
    context.emit(NameQuorum, quorum.reason, iteration=quorum.iteration, ranks=quorum.ranks)
    late = [worker for worker in _not_done(context, quorum.iteration) if worker.index not in quorum.ranks]
    for worker in late:
        worker.skip_to = quorum.iteration + 1
        job.advance(worker, quorum.iteration)
    return late


def _not_done(context: Context, iteration: int) -> list[Worker]:
    job = context.job
    return [job.workers[rank] for rank in job.generation.roster if job.workers[rank].done < iteration]


def _order_again(context: Context, workers: Iterable[Worker], reason: str) -> None:
    for worker in workers:
        ordering.issue(context, worker, reason)
