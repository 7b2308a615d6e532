"""Reports from which nothing follows: in lockstep, those of an iteration before its last.

A job of ten thousand workers reports ten thousand times per iteration, and the engine decides once, when the last one
is in. A driver that knows it holds such a report may have it noted here, without an entry and a context. What is noted
is what ``conversation`` and ``iterations`` note of the same report, to the byte of a snapshot
(``tests/core/test_ledger.py``); what is not plain is left to them.
"""

from collections.abc import Iterable

from controlplane.core.choices import Observation
from controlplane.core.context import Policies
from controlplane.core.iterations import WARM_UP_REPORTS
from controlplane.core.processes import READY
from controlplane.core.state import Job
from controlplane.core.states import JobState

LOSS = "loss:"
"""How the keys of flags begin that a report with a number for its loss closes."""


Row = tuple[int, str, int, int, int, int, float, float, float, float, float]
"""Of a report: rank, instance, number, generation, the log's clock, samples, and what it measured: seconds of
computation, communication and waiting, CPU and memory."""


class Ledger:
    """Takes reports until the engine handles another entry: it must not be used after that."""

    __slots__ = ("_job", "_open")

    def __init__(self, job: Job) -> None:
        self._job = job
        self._open = job.round.completed + 1

    def note(self, iteration: int, rows: Iterable[Row]) -> int:
        """Note reports of ``iteration``, with a loss and nothing beyond these numbers; how many of them.

        The first that is not counted has changed nothing: its entry is to be handled.
        """
        job, current, noted = self._job, self._job.round, 0
        if iteration != self._open:
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
    """The ledger of the open iteration; None where something may follow from any report."""
    if policies is None or job.spec is None or not policies.mode.owns_loop or job.state is not JobState.RUNNING:
        return None
    if policies.pilot is not None or policies.guard is not None:
        return None  # both are shown every report
    if policies.is_metered:
        return None  # rows have no joules
    if policies.async_barrier is not None or policies.is_partial or policies.partitioned is not None:
        return None
    if job.forgot or job.hold.sequence is not None or job.requests.join_at is not None:
        return None
    if job.refilling.current is not None or any(key.startswith(LOSS) for key in job.flags.open):
        return None
    return Ledger(job)
