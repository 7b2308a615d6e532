"""Synchronous iterations that are not everybody's whole share: cut short (A-BSP), or made by the first few (backup)."""

from collections.abc import Iterable, Mapping

from controlplane.core import releases, standing
from controlplane.core.commands import CutIteration, NameQuorum, NoteMicroBatch, NoteUpdates
from controlplane.core.gates import Cut, Processed, Quorum
from controlplane.core.handling import Handling
from controlplane.core.records import Worker
from controlplane.protocol.messages import Computed, IterationReport, MicroBatch, ProgressReport, ServerReport


def begin(handling: Handling, left: Mapping[int, int]) -> None:
    """A generation begins; ``left`` are those who count no longer, with their shares. Orders follow."""
    job, policies = handling.job, handling.chosen
    if policies.cutter is not None:
        policies.barrier_state, cuts = policies.cutter.begin(left, policies.barrier_state)
        for cut in cuts:
            _note_cut(handling, cut)
    if policies.namer is not None:
        policies.barrier_state, quorums = policies.namer.appoint(
            list(job.generation.roster), job.updates.apply_from - 1, policies.barrier_state
        )
        for quorum in quorums:
            _note_quorum(handling, quorum)


def on_progress(handling: Handling, worker: Worker, progress: ProgressReport) -> None:
    """A worker says how far it is within an iteration."""
    _observe(handling, worker, progress.iteration, progress.samples_done, None)


def on_micro_batch(handling: Handling, worker: Worker, size: MicroBatch) -> None:
    """A worker has measured in which pieces it works where work may be cut."""
    compared = f"{size.overhead:.0%} longer than {size.whole} at once, as measured"
    handling.give(
        NoteMicroBatch,
        f"{worker.title} works in micro-batches of {size.samples} samples: {compared}",
        rank=worker.index,
        samples=size.samples,
        whole=size.whole,
        overhead=size.overhead,
    )


def on_computed(handling: Handling, worker: Worker, computed: Computed) -> None:
    """A worker's update is ready."""
    if computed.iteration <= worker.done:
        return
    _observe(handling, worker, computed.iteration, computed.samples, None, finished=True)
    _name(handling, worker, computed.iteration)


def on_report(handling: Handling, worker: Worker, report: IterationReport) -> None:
    """A worker has finished an iteration, and has certainly computed it."""
    _observe(handling, worker, report.iteration, report.samples, report.loss, finished=True)
    _name(handling, worker, report.iteration)


def note_updates(handling: Handling, report: ServerReport) -> None:
    """A server says which updates it dropped or lacked; what another one has said already is not told again."""
    job = handling.job
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
    handling.give(NoteUpdates, "; ".join(parts), late=job.updates.late, missing=missing)


def close(handling: Handling) -> None:
    """Iterations are complete: nothing more is decided about them."""
    job, policies = handling.job, handling.chosen
    if policies.cutter is not None:
        policies.barrier_state = policies.cutter.close(job.round.completed, policies.barrier_state)
    if policies.namer is not None:
        policies.barrier_state = policies.namer.close(job.round.completed, policies.barrier_state)
    if job.updates.quorums:
        job.updates.quorums = {
            number: ranks for number, ranks in job.updates.quorums.items() if number >= job.round.completed
        }


def _observe(
    handling: Handling, worker: Worker, iteration: int, samples: int, loss: float | None, *, finished: bool = False
) -> None:
    job, policies = handling.job, handling.chosen
    if policies.cutter is None or iteration < job.updates.apply_from:
        return
    processed = Processed(
        rank=worker.index,
        iteration=iteration,
        samples=samples,
        requests=finished or samples >= job.generation.shares[worker.index],
        total=job.batch,
        loss=loss,
    )
    policies.barrier_state, cut = policies.cutter.observe(processed, policies.barrier_state)
    if cut is not None:
        _note_cut(handling, cut)
        _tell(handling, _who_owe(handling, cut.iteration), cut.reason)


def _name(handling: Handling, worker: Worker, iteration: int) -> None:
    job, policies = handling.job, handling.chosen
    if policies.namer is None or iteration < job.updates.apply_from:
        return
    policies.barrier_state, quorum = policies.namer.computed(worker.index, iteration, policies.barrier_state)
    if quorum is not None:
        late = _note_quorum(handling, quorum)
        _tell(handling, late, quorum.reason)
        job.sequence += 1
        for server in job.live_servers:
            releases.issue_server_orders(handling, server, quorum.reason)


def _note_cut(handling: Handling, cut: Cut) -> None:
    job = handling.job
    job.updates.cut = cut.iteration if job.updates.cut is None else max(job.updates.cut, cut.iteration)
    handling.give(CutIteration, cut.reason, iteration=cut.iteration, processed=cut.processed, total=cut.total)


def _note_quorum(handling: Handling, quorum: Quorum) -> list[Worker]:
    """Whoever is not named owes that iteration no longer."""
    job = handling.job
    job.updates.quorums[quorum.iteration] = quorum.ranks
    handling.give(NameQuorum, quorum.reason, iteration=quorum.iteration, ranks=quorum.ranks)
    late = [worker for worker in _who_owe(handling, quorum.iteration) if worker.index not in quorum.ranks]
    for worker in late:
        worker.skip_to = quorum.iteration + 1
        standing.advance(job, worker, quorum.iteration)
    return late


def _who_owe(handling: Handling, iteration: int) -> list[Worker]:
    job = handling.job
    return [job.workers[rank] for rank in job.generation.roster if job.workers[rank].done < iteration]


def _tell(handling: Handling, workers: Iterable[Worker], reason: str) -> None:
    for worker in workers:
        releases.issue(handling, worker, reason)
