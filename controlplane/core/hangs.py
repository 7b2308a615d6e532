"""Iterations of an attached job that do not end: a rank does not reach the all-reduce in which the others wait.

Each rank reports this
by itself (``Stalled``), with what it is doing. A rank that is not in the all-reduce while others are is flagged at
once. If all reporting ranks are in it, ranks that sent nothing are flagged after another report. A rank that hangs
after the all-reduce does not prevent the end of that iteration: the others wait for it in the next one.
"""

from controlplane.core.choices import Finding
from controlplane.core.context import Context
from controlplane.core.states import Worker
from controlplane.protocol.messages import IterationReport, Place, Stalled

HANG = "hang"

DOING: dict[Place, str] = {
    "data": "has been waiting for its next batch",
    "compute": "has been computing",
    "outside": "has been between two iterations (evaluation, checkpoint)",
    "sum": "has been waiting in the all-reduce",
}

AFTER_SUM = "has been between the all-reduce and the end of iteration {} (optimizer, checkpoint before paceline.step)"


def on_stalled(context: Context, worker: Worker, message: Stalled) -> None:
    """A rank's iteration has been open for much longer than usual."""
    job, attachment = context.job, context.job.attachment
    if worker.rank is None or not worker.rank.counts or message.iteration <= worker.done:
        return
    before = attachment.stalled_in.get(worker.index)
    if before not in (None, message.iteration) or abs(message.iteration - attachment.stalled_at) > 1:
        close(context, f"iteration {message.iteration} is open now")
    attachment.stalled_at = max(attachment.stalled_at, message.iteration)
    attachment.stalled[worker.index] = message.place
    attachment.stalled_in[worker.index] = message.iteration
    members = [job.workers[rank] for rank in job.generation.roster]
    behind = [rank for rank, iteration in attachment.stalled_in.items() if iteration < attachment.stalled_at]
    late = behind or _not_in_sum(attachment.stalled)
    if late and len(late) < len(members):
        for rank in late:
            doing = AFTER_SUM.format(attachment.stalled_in[rank]) if behind else DOING[attachment.stalled[rank]]
            who = job.workers[rank]
            waited = f"{who.title} {doing} for {message.open_s:.0f} s, and the other ranks wait for it"
            _flag_hang(context, who, message, waited)
    elif before == message.iteration:
        silent = [each for each in members if each.index not in attachment.stalled]
        for each in silent:
            _flag_hang(context, each, message, f"{each.title} sends nothing, and the other ranks wait for it")
        if not silent:
            _no_rank_is_late(context, message)


def _not_in_sum(stalled: dict[int, Place]) -> list[int]:
    """Ranks that have not reached the all-reduce. If no rank is known to be in it, a rank that seems to compute may be
    in it.
    """
    early = ("sum",) if "sum" in stalled.values() else ("sum", "compute")
    return [rank for rank, place in stalled.items() if place not in early]


def close_at(context: Context, report: IterationReport) -> None:
    """An iteration has ended at one rank, so all have reached its all-reduce."""
    if 0 <= context.job.attachment.stalled_at <= report.iteration:
        close(context, f"iteration {report.iteration} has ended")


def close(context: Context, reason: str) -> None:
    """Close the flags of hanging ranks."""
    attachment = context.job.attachment
    if attachment.stalled_at < 0:
        return
    attachment.stalled_at, attachment.stalled, attachment.stalled_in = -1, {}, {}
    context.close_flag(0, HANG, reason, subject="job")
    for rank in context.job.workers:
        context.close_flag(rank, HANG, reason)


def _flag_hang(context: Context, worker: Worker, message: Stalled, what: str) -> None:
    about = worker.environment
    where = f" on {about['machine']}" if about.get("machine") else ""
    process = about.get("pid", "")
    cure = f"inspect its stack{where} (py-spy dump --pid {process})" if process else f"look at its process{where}"
    sentence = (
        f"iteration {message.iteration} does not end: {what}; an iteration usually takes {message.usual_s:.3g} s."
        f" {cure[0].upper()}{cure[1:]}, or have its launcher start it again"
    )
    context.open_flag(worker.index, HANG, "lasting", sentence, _hang_evidence(message))


def _no_rank_is_late(context: Context, message: Stalled) -> None:
    sentence = (
        f"iteration {message.iteration} does not end: no rank is known to be late, and all have waited for"
        f" {message.open_s:.0f} s; check the network between them, and whether all ranks call the same collectives"
    )
    found = Finding(
        rank=0,
        kind=HANG,
        open=True,
        sentence=sentence,
        subject="job",
        persistence="lasting",
        evidence=_hang_evidence(message),
    )
    context.record_findings([found])


def _hang_evidence(message: Stalled) -> dict[str, float]:
    return {"iteration": message.iteration, "open_s": message.open_s, "usual_s": message.usual_s}
