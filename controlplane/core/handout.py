"""Which samples the workers draw: parts of a common batch, or pieces of splits that each has for its own.

Pieces go out with leave for one iteration, since where a worker stopped says where it goes on. A change of splits
counts from the next pieces on; what is processed under older ones counts for the samples that it was. Without lockstep
others may draw from a split that changes hands in between, so pieces count as processed when they are handed out: what
a dead worker had is left out of that pass, as with leases.
"""

from collections.abc import Iterable, Sequence

import msgspec

from controlplane.core import ending, own_data, standing
from controlplane.core.choices import DataDecision, Observation, ShareDecision
from controlplane.core.commands import MoveSplits, PartitionData
from controlplane.core.handling import Handling
from controlplane.core.records import Checkpoint, Pieces, Worker
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, JobState
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.orders import Piece


def begin(handling: Handling, ranks: Sequence[int]) -> bool:
    """A generation begins: cut the data among its workers, or give them that of those who left; whether it went."""
    data, policies, job = handling.chosen.partitioned, handling.chosen, handling.job
    if data is None:
        return True
    if policies.data_state is not None:
        policies.data_state, decision = data.adopt(ranks, policies.data_state)
        _tell(handling, decision)
        return True
    try:
        policies.data_state, reason = data.partition(job.samples.count, ranks)
    except ValueError as error:
        ending.end(handling, JobState.FAILED, f"no splits for generation {job.generation.number}: {error}")
        return False
    handling.give(PartitionData, reason, samples=job.samples.count, ranks=list(ranks))
    return True


def take_back(handling: Handling, first: int) -> None:
    """Other data from ``first`` on: no leave that was given for the samples of before, nor pieces of other splits."""
    job = handling.job
    for worker in (job.workers[rank] for rank in job.generation.roster):
        if handling.chosen.data_state is None:
            worker.pieces = Pieces()
        worker.watermark = min(worker.watermark, max(first - 1, standing.stand(worker)))


def take_batch(handling: Handling, decision: ShareDecision, iteration: int) -> None:
    """Lay the shares of ``iteration`` and later ones side by side; with a time budget, the most that each may take.

    What of it nobody gets to is left out of that pass over the data.
    """
    job = handling.job
    most = decision.ceilings or decision.shares
    width = sum(most.values()) if decision.ceilings else 0
    if width != job.samples.budget_width:
        job.samples.origin_position += max(0, iteration - job.samples.origin_iteration) * job.width
        job.samples.origin_iteration = max(job.samples.origin_iteration, iteration)
    job.samples.budget_width = width
    job.generation.offsets = handling.chosen.data.offsets(most)
    job.generation.budget_s, job.generation.ceilings = decision.budget_s, decision.ceilings


def hand_out(handling: Handling, ranks: Iterable[int]) -> None:
    """Pieces for those who have leave for an iteration and no samples for it."""
    data, job = handling.chosen.partitioned, handling.job
    if data is None:
        return
    due = [worker for worker in (job.workers[rank] for rank in ranks) if worker.watermark > worker.pieces.iteration]
    if not due:
        return
    own, free = own_data.bounds(handling), handling.chosen.gate is not None
    most = {worker.index: min(_most(job, worker), own.get(worker.index, _most(job, worker))) for worker in due}
    pieces = data.pieces(most, handling.chosen.data_state)
    for worker in due:
        worker.pieces = Pieces(iteration=worker.watermark, ranges=pieces[worker.index], counted=free)
        if free:
            handling.chosen.data_state = data.advance(worker.pieces.ranges, handling.chosen.data_state)


def on_report(handling: Handling, worker: Worker, report: IterationReport) -> None:
    """Note what was really processed."""
    job, policies = handling.job, handling.chosen
    if policies.gate is None:
        job.round.processed[report.iteration] = job.round.processed.get(report.iteration, 0) + report.samples
    if policies.partitioned is None or report.iteration != worker.pieces.iteration or worker.pieces.counted:
        return
    if worker.pieces.ranges and report.position != worker.pieces.ranges[0].start:
        return
    worker.pieces.drawn = report.samples
    if policies.gate is not None:
        _advance(handling, [worker])


def on_departure(handling: Handling, worker: Worker) -> None:
    """What a worker reported before it left was processed: its update stays in the open iteration."""
    _advance(handling, [worker])


def close(handling: Handling, observations: Sequence[Observation]) -> None:
    """Iterations are complete: go on behind what was processed, and let splits change hands.

    One in which nobody processed anything is an error (ruling 17): it says nothing, and would be repeated for ever.
    """
    job = handling.job
    for iteration in sorted(number for number in job.round.processed if number <= job.round.completed):
        if not job.round.processed.pop(iteration) and job.state not in JOB_OVER:
            who = ", ".join(f"w{rank}" for rank in job.generation.roster)
            found = f"iteration {iteration}: the updates of {who} stand for 0 samples together, expected at least 1"
            ending.end(handling, JobState.FAILED, found)
    if handling.chosen.partitioned is not None and job.state not in JOB_OVER:
        _advance(handling, [job.workers[rank] for rank in job.generation.roster])
        rebalance(handling, observations)
        asked = handling.spec.checkpoint
        if asked is not None and (job.round.completed + 1) % asked.every == 0:
            remember(handling, job.round.completed + 1)


def remember(handling: Handling, iteration: int) -> None:
    """Keep where the splits stand before ``iteration``: a checkpoint of it is made."""
    job = handling.job
    if handling.chosen.partitioned is not None:
        job.checkpoints.splits = {
            **job.checkpoints.splits,
            iteration: msgspec.msgpack.encode(handling.chosen.data_state),
        }


def go_back(handling: Handling, target: Checkpoint) -> None:
    """Let the splits stand as they did before ``target.iteration``; at the beginning they are cut as at first."""
    policies = handling.chosen
    if policies.partitioned is None:
        return
    if target.splits:
        policies.data_state = msgspec.msgpack.decode(target.splits, type=policies.partitioned.state_type)
    elif not target.iteration:
        policies.data_state = None


def rebalance(handling: Handling, observations: Sequence[Observation]) -> None:
    """Let splits change hands where their process counts call for it."""
    data, policies = handling.chosen.partitioned, handling.chosen
    if data is None:
        return
    speeds = {seen.rank: seen.samples / seen.busy_s for seen in observations if seen.busy_s > 0}
    policies.data_state, decision = data.rebalance(speeds, policies.data_state)
    _tell(handling, decision)


def _advance(handling: Handling, workers: Iterable[Worker]) -> None:
    data, policies = handling.chosen.partitioned, handling.chosen
    for worker in workers:
        if data is not None and worker.pieces.drawn:
            policies.data_state = data.advance(_first(worker.pieces.ranges, worker.pieces.drawn), policies.data_state)
        worker.pieces.drawn = 0


def _first(pieces: Sequence[Piece], count: int) -> list[Piece]:
    """The first ``count`` samples of them."""
    done = []
    for piece in pieces:
        taken = min(count, piece.stop - piece.start)
        if taken > 0:
            done.append(msgspec.structs.replace(piece, stop=piece.start + taken))
        count -= taken
    return done


def _most(job: Job, worker: Worker) -> int:
    if worker.leases:
        return worker.leases[-1].share
    return job.generation.ceilings.get(worker.index, job.generation.shares[worker.index])


def _tell(handling: Handling, decision: DataDecision) -> None:
    if decision.moves:
        handling.give(MoveSplits, decision.reason, iteration=handling.job.round.completed + 1, moves=decision.moves)
