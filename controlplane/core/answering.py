"""Workers that sample their peers, of which some cannot be reached by others: a finding on who, by whom, and the cure.

A worker that reaches no other waits, and affects those that wait for it. A worker that is not reached delays no other:
the others continue without it, so only a finding shows that the barrier no longer includes it.
"""

from controlplane.core.context import Context
from controlplane.core.processes import Worker
from controlplane.protocol.messages import IterationReport

KIND = "unanswered"


def on_report(context: Context, worker: Worker, report: IterationReport) -> None:
    """A worker reports the ranks that it continues without."""
    known = context.job.flags.unanswered
    for rank in sorted({*known, *report.unanswered}):
        asking = [other for other in known.get(rank, []) if other != worker.index and context.job.counts(other)]
        if rank in report.unanswered:
            asking = sorted([*asking, worker.index])
        if asking and context.job.counts(rank):
            known[rank] = asking
            _name(context, context.job.workers[rank], asking)
        elif rank in known:
            del known[rank]
            context.close_flag(rank, KIND, "every worker that samples it has its answers again")


def _name(context: Context, silent: Worker, asking: list[int]) -> None:
    titles = [context.job.workers[rank].title for rank in asking]
    hosts = ", ".join(sorted({context.job.workers[rank].host for rank in asking}))
    sentence = (
        f"{silent.title} does not answer {', '.join(titles)}, which asked how far it is: the barrier no longer keeps "
        f"them within its bound of {silent.title}. Let {hosts} reach {silent.host} at port {silent.port}, "
        "or change the barrier to sampling: central"
    )
    context.open_flag(silent.index, KIND, "lasting", sentence, {"asked_by": titles})
