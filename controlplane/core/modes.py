"""How workers are synchronized: in lockstep, by a script, or asynchronously. Each mode has the same methods.

In *lockstep* every counting worker contributes to each iteration: servers hold each pull until all updates are in, so
grants cover some iterations ahead, and the samples of an iteration are one global batch. *Asynchronously* servers apply
each update on its own, and each worker has its own grants and samples. *Attached* ranks are in lockstep by collectives
of their script: a launcher owns their processes, and the script their loop. The mode is chosen once, when a barrier is
adopted; other modules ask it how workers are synchronized, and never which mode it is.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from controlplane.core.barriers import AsyncBarrier, Stepping, stepping_of
from controlplane.core.choices import Observation, Transfer
from controlplane.core.records import Checkpoint
from controlplane.core.states import AT_WORK, Worker
from controlplane.protocol.orders import Apply, Orders
from controlplane.protocol.spec import JobSpec

if TYPE_CHECKING:
    from controlplane.core.state import Job


class Lockstep:
    """All counting workers make each iteration together."""

    owns_processes: ClassVar = True
    """Whether the engine starts and ends processes on slots of machines; otherwise a launcher does."""
    owns_loop: ClassVar = True
    """Whether the training loop is Paceline's; otherwise a script has its own loop."""
    grants_iterations: ClassVar = True
    """Whether a worker waits for the grant of an iteration, or for its share."""
    has_global_batch: ClassVar = True
    """Whether the samples of an iteration are one batch, whose shares lie side by side."""
    ends_together: ClassVar = True
    """Whether all workers stop before the same iteration, which is known beforehand."""
    joins_together: ClassVar = True
    """Whether new workers count from an iteration that no worker has started."""
    keeps_versions: ClassVar = True
    """Whether servers save every n-th version without orders, because all blocks reach it at the same time."""
    loses_unpulled: ClassVar = False
    """Whether a block may contain updates that no worker has pulled yet and none will push again."""

    def first_stop(self, spec: JobSpec) -> int | None:
        """The iteration at which a job stops, if known when it begins."""
        return spec.stop.iterations

    def stop_again(self, target: Checkpoint) -> int | None:
        """The iteration at which a job stops after a rollback to ``target``."""
        return target.stop_at

    def is_ending(self, job: "Job") -> bool:
        """Whether the end is too near to change policies."""
        return False

    def is_too_late(self, job: "Job") -> bool:
        """Whether the job ends before a new worker could count."""
        return job.end.stop_at is not None and job.end.stop_at <= self.soonest(job)

    def soonest(self, job: "Job") -> int:
        """The first iteration that another roster can begin with: the first that no worker was granted."""
        return max([worker.granted for worker in job.counting], default=job.round.completed) + 1

    def first_of_change(self, job: "Job") -> int:
        """The first iteration under other policies: the one after the open one."""
        return job.round.completed + 2

    def freeze_at(self, job: "Job") -> int:
        """The version at which blocks move: after the open iteration, which some workers may already be pushing."""
        return max(job.round.completed + 2, job.generation.first_iteration)

    def may_leave(self, job: "Job", worker: Worker) -> bool:
        """Whether a worker that should leave can leave now."""
        return True

    def leaving_sentence(self, first: int) -> str:
        """When a worker that should leave does so, for the operator."""
        return f"before iteration {first}"

    def stop_of(self, job: "Job", worker: Worker) -> int | None:
        """The iteration at which this worker stops."""
        return job.end.stop_at

    def ends_early(self, job: "Job", iteration: int) -> bool:
        """Whether a worker that finished before ``iteration`` has ended too early."""
        return job.end.stop_at is not None and iteration < job.end.stop_at

    def is_final(self, job: "Job", worker: Worker) -> bool:
        """Whether the parameters are final when this worker has finished."""
        return True

    def done_sentence(self, count: int) -> str:
        """The sentence for ``count`` finished iterations."""
        return f"{count} iterations were done"

    def samples(self, job: "Job", worker: Worker, *, every_iteration: bool) -> dict[str, Any]:
        """Fields of a worker's orders that say which samples it takes."""
        generation, origin = job.generation, job.samples
        reaches = job.round.completed + 1 if every_iteration else worker.watermark
        return {
            "share": generation.shares[worker.index],
            "offset": generation.offsets[worker.index],
            "origin_iteration": origin.origin_iteration,
            "origin_position": origin.origin_position,
            "share_from": generation.share_from,
            "share_until": max(generation.share_from, reaches),
        }

    def position_of(self, job: "Job", iteration: int) -> int | None:
        """Position of the first sample of ``iteration``; None if it was counted from another origin."""
        origin = job.samples
        if iteration < origin.origin_iteration:
            return None
        return origin.origin_position + (iteration - origin.origin_iteration) * job.width

    def dropped(self, job: "Job") -> int:
        """Samples that were handed out and are not in the current parameters."""
        return 0

    def seen(self, job: "Job", iteration: int) -> dict[int, Observation]:
        """Observations of the round that contains ``iteration``."""
        return job.round.observed.setdefault(iteration, {})

    def exchanges(self, job: "Job", iteration: int) -> list[Transfer]:
        """The exchanges with servers in the same iterations."""
        return job.round.transfers.setdefault(iteration, [])

    def take_over(self, job: "Job", published: dict[int, Orders]) -> None:
        """Keep the samples of orders that were published before."""
        if not _divide_the_batch(job, published):
            return
        generation = job.generation
        generation.shares = {rank: published[rank].share for rank in generation.roster}
        generation.offsets = {rank: published[rank].offset for rank in generation.roster}
        generation.share_from = max(orders.share_from for orders in published.values())

    def worth(self, version: int, steps: int) -> tuple[int, int]:
        """Sort key of copies of a block: the newest is the largest. In lockstep it is the version."""
        return version, steps

    def apply(self, job: "Job") -> Apply:
        """When servers apply updates."""
        return "quorum"

    def stepping(self, job: "Job") -> Stepping:
        """The effect of one update at the servers."""
        return Stepping(scale=1.0, gather=1)

    def places_again(self, job: "Job") -> bool:
        """Whether workers may have to repeat pushes that they made under the previous placement."""
        return True


class Attached(Lockstep):
    """Ranks that a launcher starts; their script synchronizes each iteration by its own collectives."""

    owns_processes: ClassVar = False
    owns_loop: ClassVar = False
    grants_iterations: ClassVar = False


class Asynchronous(Lockstep):
    """Each worker continues independently."""

    has_global_batch: ClassVar = False
    ends_together: ClassVar = False
    joins_together: ClassVar = False
    keeps_versions: ClassVar = False
    loses_unpulled: ClassVar = True

    def __init__(self, barrier: AsyncBarrier) -> None:
        self._barrier = barrier

    def first_stop(self, spec: JobSpec) -> int | None:
        """Unknown: the job ends when all samples are handed out, and fast workers take more of them."""
        return None

    def stop_again(self, target: Checkpoint) -> int | None:
        """Unknown, as at the beginning."""
        return None

    def is_ending(self, job: "Job") -> bool:
        """The end is known only once all samples are handed out."""
        return job.end.stop_at is not None

    def is_too_late(self, job: "Job") -> bool:
        """A job with a known end hands out no more samples."""
        return True

    def soonest(self, job: "Job") -> int:
        """The present iteration of the slowest worker: another roster begins at once."""
        return job.reached() + 1

    def first_of_change(self, job: "Job") -> int:
        """At once, each worker at its own next boundary."""
        return job.reached() + 1

    def freeze_at(self, job: "Job") -> int:
        """At once."""
        return 0

    def may_leave(self, job: "Job", worker: Worker) -> bool:
        """At its own boundary, once it has finished an iteration after the request or was granted no further one."""
        at = worker.last_completed
        return worker.is_stopped or at > job.requests.left_out[worker.index].after or at >= worker.granted

    def leaving_sentence(self, first: int) -> str:
        """It does not wait for other workers."""
        return "at its next boundary"

    def stop_of(self, job: "Job", worker: Worker) -> int | None:
        """Each has its own end."""
        return worker.stop_at

    def ends_early(self, job: "Job", iteration: int) -> bool:
        """Each has its own end."""
        return False

    def is_final(self, job: "Job", worker: Worker) -> bool:
        """Others may push after it; called for the evaluator only."""
        return worker.index != job.generation.roster[0] or job.starts.at_work <= (worker.state in AT_WORK)

    def done_sentence(self, count: int) -> str:
        """Names the progress of the slowest worker."""
        return f"every worker got as far as iteration {count}"

    def samples(self, job: "Job", worker: Worker, *, every_iteration: bool) -> dict[str, Any]:
        """The samples leased to this worker."""
        leases = worker.leases
        first = leases[-1].first if leases else worker.last_completed + 1
        return {
            "share": leases[-1].share if leases else job.generation.shares[worker.index],
            "offset": 0,
            "origin_iteration": first,
            "origin_position": leases[-1].position if leases else job.samples.cursor,
            "share_from": first,
            "share_until": max(first, worker.watermark),
            "ranges": list(leases),
        }

    def position_of(self, job: "Job", iteration: int) -> int | None:
        """After all samples that were handed out."""
        return job.samples.cursor

    def dropped(self, job: "Job") -> int:
        """Dropped samples, and samples that are leased and not used."""
        return job.samples.dropped + sum(_unused(worker) for worker in job.counting)

    def seen(self, job: "Job", iteration: int) -> dict[int, Observation]:
        """The latest observation of each worker in this round."""
        return job.round.recent

    def exchanges(self, job: "Job", iteration: int) -> list[Transfer]:
        """The exchanges of this round."""
        return job.round.recent_transfers

    def take_over(self, job: "Job", published: dict[int, Orders]) -> None:
        """Keep the leases of these orders."""
        for rank, orders in published.items():
            job.workers[rank].leases = list(orders.ranges)
            ends = [lease.position + (lease.last - lease.first + 1) * lease.share for lease in orders.ranges]
            job.samples.cursor = max([job.samples.cursor, *ends])

    def worth(self, version: int, steps: int) -> tuple[int, int]:
        """Each worker counts its own versions, so the number of steps decides."""
        return steps, version

    def apply(self, job: "Job") -> Apply:
        """On arrival, or once the barrier releases their worker (PSP Alg. 1, literally)."""
        return "release" if self._barrier.holds_updates and job.end.stop_at is None else "arrival"

    def stepping(self, job: "Job") -> Stepping:
        """Depends on the optimizer."""
        assert job.spec is not None
        is_ending = job.end.stop_at is not None
        return stepping_of(job.spec, self._barrier.step_scale, len(job.generation.roster), is_ending=is_ending)

    def places_again(self, job: "Job") -> bool:
        """Only while iterations are open that began in lockstep."""
        return job.round.completed + 1 < job.updates.apply_from


def mode_of(barrier: AsyncBarrier | None, *, attached: bool) -> Lockstep:
    """The mode for ``barrier``; None stands for any synchronous one. ``attached``: a launcher owns the workers."""
    if barrier is not None:
        return Asynchronous(barrier)
    return Attached() if attached else Lockstep()


def _unused(worker: Worker) -> int:
    """Samples that a worker was granted and has not used."""
    return sum(max(0, each.last - max(each.first - 1, worker.done)) * each.share for each in worker.leases)


def _divide_the_batch(job: "Job", published: dict[int, Orders]) -> bool:
    """Whether these orders come from one decision about all counting workers."""
    if sorted(published) != job.generation.roster or any(
        orders.generation != job.generation.number for orders in published.values()
    ):
        return False
    share_from = {orders.share_from for orders in published.values()}
    spans = sorted((orders.offset, orders.offset + orders.share) for orders in published.values())
    ends = [0, *(stop for _, stop in spans)]
    whole = ends[-1] == sum(job.generation.shares.values())
    return whole and len(share_from) == 1 and all(start == end for (start, _), end in zip(spans, ends, strict=False))
