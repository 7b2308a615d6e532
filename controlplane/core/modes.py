"""How workers are synchronized: in lockstep, by a script, or asynchronously. Each mode answers the same questions.

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
    """Whether the engine has processes started and ended, on slots of machines; else a launcher does."""
    owns_loop: ClassVar = True
    """Whether the training loop is Paceline's; else it is a script's, which decides what an odd update means."""
    grants_iterations: ClassVar = True
    """Whether a worker waits to be granted an iteration, or for its share of it."""
    has_global_batch: ClassVar = True
    """Whether the samples of an iteration are one batch, whose shares lie side by side."""
    ends_together: ClassVar = True
    """Whether all workers stop before the same iteration, which is known beforehand."""
    joins_together: ClassVar = True
    """Whether new workers count from an iteration that no worker has started."""
    keeps_versions: ClassVar = True
    """Whether servers save every n-th version without orders, since all blocks have it at the same time."""
    loses_unpulled: ClassVar = False
    """Whether a block may contain updates that no worker has pulled yet and none will push again."""

    def first_stop(self, spec: JobSpec) -> int | None:
        """Where a job stops, as known when it begins."""
        return spec.stop.iterations

    def stop_again(self, target: Checkpoint) -> int | None:
        """Where a job stops that goes back to ``target``."""
        return target.stop_at

    def is_ending(self, job: "Job") -> bool:
        """Whether the end is near, so that policies cannot be changed any more."""
        return False

    def is_too_late(self, job: "Job") -> bool:
        """Whether a job with a known end is over before a new worker could count."""
        return job.end.stop_at is not None and job.end.stop_at <= self.soonest(job)

    def soonest(self, job: "Job") -> int:
        """The first iteration from which another roster can count: the first that no worker was granted."""
        return max([worker.granted for worker in job.counting], default=job.round.completed) + 1

    def first_of_change(self, job: "Job") -> int:
        """The first iteration under other policies: behind the open one."""
        return job.round.completed + 2

    def freeze_at(self, job: "Job") -> int:
        """The version at which blocks move: behind the open iteration, which some may be pushing already."""
        return max(job.round.completed + 2, job.generation.first_iteration)

    def may_leave(self, job: "Job", worker: Worker) -> bool:
        """Whether a worker that should leave may go now, once another roster can count."""
        return True

    def leaving_sentence(self, first: int) -> str:
        """When a leaving worker leaves, for the operator."""
        return f"before iteration {first}"

    def stop_of(self, job: "Job", worker: Worker) -> int | None:
        """Where this worker stops."""
        return job.end.stop_at

    def ends_early(self, job: "Job", iteration: int) -> bool:
        """Whether a worker that has finished before ``iteration`` lacks some."""
        return job.end.stop_at is not None and iteration < job.end.stop_at

    def is_final(self, job: "Job", worker: Worker) -> bool:
        """Whether the parameters will not change any more when this worker has finished."""
        return True

    def done_sentence(self, count: int) -> str:
        """How far the job has come, so many iterations."""
        return f"{count} iterations were done"

    def samples(self, job: "Job", worker: Worker, *, every_iteration: bool) -> dict[str, Any]:
        """Which samples a worker takes, as its orders have it."""
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
        """Where the samples of ``iteration`` begin; None: they were counted from another origin."""
        origin = job.samples
        if iteration < origin.origin_iteration:
            return None
        return origin.origin_position + (iteration - origin.origin_iteration) * job.width

    def dropped(self, job: "Job") -> int:
        """Samples that were handed out and are in no version that is kept now."""
        return 0

    def seen(self, job: "Job", iteration: int) -> dict[int, Observation]:
        """Observations of the round that contains ``iteration``."""
        return job.round.observed.setdefault(iteration, {})

    def exchanges(self, job: "Job", iteration: int) -> list[Transfer]:
        """The exchanges with servers in the same iterations."""
        return job.round.transfers.setdefault(iteration, [])

    def take_over(self, job: "Job", published: dict[int, Orders]) -> None:
        """Let the samples hold that published orders named."""
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
        """Whether what a worker has pushed under another placement may have to be pushed again."""
        return True


class Attached(Lockstep):
    """Ranks of a launcher, whose script makes each iteration by collectives of its own."""

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
        """Unknown: the job ends when all samples are handed out, and a fast worker takes more of them."""
        return None

    def stop_again(self, target: Checkpoint) -> int | None:
        """As at the beginning."""
        return None

    def is_ending(self, job: "Job") -> bool:
        """It has an end only when nothing more is handed out."""
        return job.end.stop_at is not None

    def is_too_late(self, job: "Job") -> bool:
        """A job that has an end hands out nothing more."""
        return True

    def soonest(self, job: "Job") -> int:
        """At once: the iteration of the slowest."""
        return job.reached() + 1

    def first_of_change(self, job: "Job") -> int:
        """At once, each worker at its own next boundary."""
        return job.reached() + 1

    def freeze_at(self, job: "Job") -> int:
        """At once."""
        return 0

    def may_leave(self, job: "Job", worker: Worker) -> bool:
        """At its own boundary: it has finished an iteration since it was ordered to leave, or was granted no other."""
        at = worker.last_completed
        return worker.is_stopped or at > job.requests.left_out[worker.index].after or at >= worker.granted

    def leaving_sentence(self, first: int) -> str:
        """Regardless of the other workers."""
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
        """The slowest is named by it."""
        return f"every worker got as far as iteration {count}"

    def samples(self, job: "Job", worker: Worker, *, every_iteration: bool) -> dict[str, Any]:
        """Samples that were leased to this worker alone."""
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
        """Behind all that was handed out."""
        return job.samples.cursor

    def dropped(self, job: "Job") -> int:
        """Those that were dropped, and what is leased and not used."""
        return job.samples.dropped + sum(_unused(worker) for worker in job.counting)

    def seen(self, job: "Job", iteration: int) -> dict[int, Observation]:
        """The latest of each worker in this round."""
        return job.round.recent

    def exchanges(self, job: "Job", iteration: int) -> list[Transfer]:
        """Those of this round."""
        return job.round.recent_transfers

    def take_over(self, job: "Job", published: dict[int, Orders]) -> None:
        """What was leased by them is leased."""
        for rank, orders in published.items():
            job.workers[rank].leases = list(orders.ranges)
            ends = [lease.position + (lease.last - lease.first + 1) * lease.share for lease in orders.ranges]
            job.samples.cursor = max([job.samples.cursor, *ends])

    def worth(self, version: int, steps: int) -> tuple[int, int]:
        """Each worker counts versions of its own, so the number of steps decides."""
        return steps, version

    def apply(self, job: "Job") -> Apply:
        """On arrival, or once the barrier releases their worker (PSP Alg. 1, literally)."""
        return "release" if self._barrier.holds_updates and job.end.stop_at is None else "arrival"

    def stepping(self, job: "Job") -> Stepping:
        """As suits the optimizer."""
        assert job.spec is not None
        is_ending = job.end.stop_at is not None
        return stepping_of(job.spec, self._barrier.step_scale, len(job.generation.roster), is_ending=is_ending)

    def places_again(self, job: "Job") -> bool:
        """Only while iterations are open that were begun in lockstep."""
        return job.round.completed + 1 < job.updates.apply_from


def mode_of(barrier: AsyncBarrier | None, *, attached: bool) -> Lockstep:
    """The mode under that barrier, if it is asynchronous; ``attached``: of a job whose launcher owns its workers."""
    if barrier is not None:
        return Asynchronous(barrier)
    return Attached() if attached else Lockstep()


def _unused(worker: Worker) -> int:
    """Samples that a worker was granted and has not used."""
    return sum(max(0, each.last - max(each.first - 1, worker.done)) * each.share for each in worker.leases)


def _divide_the_batch(job: "Job", published: dict[int, Orders]) -> bool:
    """Whether these orders are one decision about all counting workers."""
    if sorted(published) != job.generation.roster or any(
        orders.generation != job.generation.number for orders in published.values()
    ):
        return False
    share_from = {orders.share_from for orders in published.values()}
    spans = sorted((orders.offset, orders.offset + orders.share) for orders in published.values())
    ends = [0, *(stop for _, stop in spans)]
    whole = ends[-1] == sum(job.generation.shares.values())
    return whole and len(share_from) == 1 and all(start == end for (start, _), end in zip(spans, ends, strict=False))
