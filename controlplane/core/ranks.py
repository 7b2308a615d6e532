"""The ranks of an attached job: processes that a launcher starts and ends, independently of Paceline.

A rank exists from its hello on. Once all of a world are here they are a generation; a rank that comes as another
process, or all of them with another world size, are the next. Rounds are closed by their reports. A rank never waits
for the control plane. A silent rank is only shown as unreachable: its launcher alone ends it.
"""

from typing import Final

from controlplane.core import drawing, filling, generations, granting, hangs, ordering
from controlplane.core.choices import Finding
from controlplane.core.commands import IssueOrders, RejectMessage, RollBack
from controlplane.core.context import Context, being, flag_key, number_of
from controlplane.core.events import WorkerMessageReceived
from controlplane.core.processes import UNREACHABLE, ProcessState, Rank, Worker
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, JobState, in_words
from controlplane.protocol import RELEASE, understands
from controlplane.protocol.base import MAX_INT32
from controlplane.protocol.messages import RankHello
from controlplane.protocol.orders import Orders, Rejection

NAMED: Final = 8
"""So many ranks are named in a sentence."""

MOST_OPEN: Final = 1_000
"""Rounds that are remembered while not all ranks have reported them."""

DIFFER: Final = "ranks"
RELEASES: Final = "release"
"""Kinds of findings: ranks that do not fit together, and one whose Paceline is another."""


def speaker(context: Context, event: WorkerMessageReceived) -> Worker | None:
    """The rank's current instance; a first hello starts one. None: the message is rejected."""
    job, worker, message = context.job, context.job.workers.get(event.rank), event.message
    is_current = worker is not None and worker.instance == event.instance
    if is_current or (worker is not None and job.attachment.is_past(event.rank, event.instance)):
        return worker
    if job.state in JOB_OVER:
        _refuse(context, event, "stale", f"the job {in_words(job.state)}: it counts nothing more")
        return None
    if not isinstance(message, RankHello):
        _refuse(context, event, "unexpected", "the first message of a rank is its hello")
        return None
    if message.rank != event.rank or message.rank >= message.world:
        found = f"it says hello as rank {message.rank} of a world of {message.world} on the socket of rank {event.rank}"
        _refuse(context, event, "unexpected", f"{found}: expected that rank, below the world's size")
        return None
    return _start_instance(context, event.instance, message)


def greet(context: Context, worker: Worker, hello: RankHello) -> bool:
    """A rank is here, or again; whether a generation has begun with it."""
    job = context.job
    assert worker.rank is not None
    worker.rank.samples, worker.rank.batch_size, worker.rank.multiple = _of(hello)
    job.samples.count = max(job.samples.count, hello.sample_count)
    _compare_release(context, worker, hello.release)
    if worker.rank.counts:
        ordering.issue(context, worker, "hello")
        on_return(context, worker)
        return False
    _issue_first(context, worker)
    members = _members(job, worker.rank.world)
    if members is None:
        _report_missing(context, worker.rank.world)
        return False
    if not _agree(context, members):
        return False
    _begin(context, members)
    return True


def on_return(context: Context, worker: Worker) -> None:
    """A rank that had been silent is connected again."""
    job = context.job
    context.has_new_deadline = True
    context.close_flag(worker.index, "lost", f"{worker.title} speaks again")
    if (
        DIFFER in job.pauses
        and job.generation.roster
        and all(job.workers[rank].state is not UNREACHABLE for rank in job.generation.roster)
    ):
        granting.go_on_with_ranks(context, f"{number_of(len(job.generation.roster), 'rank')} speak again")


def forget_old(job: Job) -> None:
    """Rounds that stay open since one rank is silent are remembered no longer, where there are too many of them."""
    for rounds in (job.round.observed, job.round.processed, job.round.transfers, job.attachment.ends):
        while len(rounds) > MOST_OPEN:
            del rounds[min(rounds)]


def _of(hello: RankHello) -> tuple[int, int, int]:
    return hello.sample_count, hello.batch_size, hello.multiple


def _start_instance(context: Context, instance: str, hello: RankHello) -> Worker:
    job, before = context.job, context.job.workers.get(hello.rank)
    where = f" on {hello.host}" if hello.host else ""
    started = f", started by {hello.launcher}" if hello.launcher else ""
    reason = f"rank {hello.rank} of {hello.world} said hello{where}{started}"
    if before is not None:
        job.attachment.end_lost(before.index, before.instance)
        if not before.over:
            over = ProcessState.STOPPED if before.state is ProcessState.FINISHED else ProcessState.LOST
            context.move_process(before, over, f"another process has replaced its rank{where}")
    knows = hello.iteration is not None
    job.workers[hello.rank] = worker = Worker(
        role="worker",
        index=hello.rank,
        instance=instance,
        agent=0,
        slot=0,
        emulate=None,
        state=ProcessState.READY,
        since_ms=context.now_ms,
        seen_ms=context.now_ms,
        ordered_ms=context.now_ms,
        environment=_about(hello),
        rank=Rank(
            world=hello.world,
            batch_size=hello.batch_size,
            samples=hello.sample_count,
            multiple=hello.multiple,
            starts=hello.iteration if hello.iteration is not None else job.round.completed + 1,
            knows=knows,
            scales_lr=hello.scales_lr,
            position=hello.position if knows else None,
            host=hello.host,
        ),
    )
    job.starts.at_work += 1
    context.has_new_deadline = True
    context.report_process(worker, reason)
    return worker


def _issue_first(context: Context, worker: Worker) -> None:
    """Orders before there is a generation with this instance: where it begins, with the shares of before, or even
    ones.
    """
    job, rank = context.job, worker.rank
    assert rank is not None
    known = [job.generation.shares[each] for each in job.generation.roster]
    total = rank.world * rank.batch_size
    shares = known if len(known) == rank.world and sum(known) == total else [rank.batch_size] * rank.world
    job.sequence += 1
    position = rank.position if rank.position is not None else _position(job, rank.starts)
    worker.orders = Orders(
        incarnation=job.incarnation,
        generation=job.generation.number,
        sequence=job.sequence,
        share=shares[worker.index],
        offset=sum(shares[: worker.index]),
        global_batch=total,
        origin_iteration=rank.starts,
        origin_position=position,
        share_from=rank.starts,
        share_until=MAX_INT32,
        watermark=MAX_INT32,
        placement_version=0,
        stop_at=job.end.stop_at,
        decision_timeout_s=0.0,
        hold=job.hold.sequence is not None,
        shares=shares,
        shares_version=job.attachment.version,
        begins=job.attachment.begins.get(rank.starts),
    )
    drawing.raise_to(worker, MAX_INT32)
    context.emit(IssueOrders, "hello", rank=worker.index, instance=worker.instance, orders=worker.orders)


def _position(job: Job, iteration: int) -> int:
    """Where that iteration begins, by reports, or else by the job's own count."""
    if iteration in job.attachment.begins:
        return job.attachment.begins[iteration]
    return max(0, job.samples.origin_position + (iteration - job.samples.origin_iteration) * job.width)


def _members(job: Job, world: int) -> list[Worker] | None:
    """The ranks of a world, once all are here."""
    members = [job.workers.get(rank) for rank in range(world)]
    here = [each for each in members if each is not None and each.rank is not None]
    ready = [each for each in here if each.state is ProcessState.READY and each.rank and each.rank.world == world]
    if len(ready) < world:
        return None
    # One that begins again where the others have been long ago comes with all others: theirs should be awaited.
    moves_back = any(
        each.rank and each.rank.knows and not each.rank.counts and each.rank.starts <= job.round.completed
        for each in ready
    )
    return None if moves_back and any(each.rank and each.rank.counts for each in ready) else ready


def _report_missing(context: Context, world: int) -> None:
    job = context.job
    here = [
        each.title
        for each in job.live_workers
        if each.rank is not None and each.rank.world == world and each.state is ProcessState.READY
    ]
    sizes = sorted({each.rank.world for each in job.live_workers if each.rank and each.state is ProcessState.READY})
    if len(sizes) > 1:
        worlds_text = "; ".join(f"{_named(_of_world(job, size))} of a world of {size}" for size in sizes)
        _differ(context, f"the ranks report different world sizes: {worlds_text}; start all with one world size")
    missing = [f"w{rank}" for rank in range(world) if f"w{rank}" not in here]
    awaited = f"{granting.RANKS_AWAITED} {_named(missing)}; {len(here)} of {world} are here"
    granting.await_ranks(context, f"{len(here)} of {number_of(world, 'rank')} are here", awaited)


def _of_world(job: Job, size: int) -> list[str]:
    return [each.title for each in job.live_workers if each.rank is not None and each.rank.world == size]


def _agree(context: Context, members: list[Worker]) -> bool:
    """Whether the ranks of a world fit together; they are notified if not, and continue with even shares."""
    facts = [(each.title, each.rank) for each in members if each.rank is not None]
    for name, values in (
        ("batch_size", {title: rank.batch_size for title, rank in facts}),
        ("sample_count", {title: rank.samples for title, rank in facts if rank.samples}),
    ):
        if len(set(values.values())) > 1:
            found = ", ".join(f"{title} {value}" for title, value in list(values.items())[:NAMED])
            sentence = f"the ranks differ in {name}: {found}; the shares stay equal until all have the same"
            _differ(context, sentence)
            granting.await_ranks(context, sentence, f"{granting.RANKS_AWAITED} with one {name}")
            return False
    return True


def _differ(context: Context, sentence: str) -> None:
    """Notify the ranks and the operator."""
    if flag_key(DIFFER, "job", 0) in context.job.flags.open:
        return
    found = Finding(rank=0, kind=DIFFER, open=True, sentence=sentence, subject="job")
    context.record_findings([found])
    for worker in context.job.live_workers:
        if worker.state is ProcessState.READY:
            announce(context, worker, sentence)


def announce(context: Context, worker: Worker, sentence: str) -> None:
    """A sentence for the rank's log; it changes nothing."""
    rejection = Rejection(code="unexpected", detail=sentence)
    context.emit(
        RejectMessage, sentence, role="worker", index=worker.index, instance=worker.instance, rejection=rejection
    )


def _begin(context: Context, members: list[Worker]) -> None:
    """These ranks are a generation, from the iteration on that they begin with."""
    job, world = context.job, len(members)
    facts = [each.rank for each in members if each.rank is not None]
    first = _first(context, members)
    for worker in [each for each in job.live_workers if each.index >= world]:
        context.move_process(worker, ProcessState.STOPPED, f"the ranks are {world} now")
    context.close_flag(0, DIFFER, "the ranks fit together", subject="job")
    position = next((rank.position for rank in facts if not rank.counts and rank.position is not None), None)
    if position is not None or job.batch != world * facts[0].batch_size:
        position = _position(job, first) if position is None else position
        job.samples.origin_iteration, job.samples.origin_position = first, position
    job.samples.global_batch = world * facts[0].batch_size
    for worker in members:
        assert worker.rank is not None
        if not worker.rank.counts:
            worker.done, worker.from_iteration = first - 1, first
            worker.rank.counts = True
        context.close_flag(worker.index, "lost", f"{worker.title} is here again")
    hangs.close(context, "the ranks began again")
    filling.begin(context, members)
    here = f"{number_of(world, 'rank')} {being(world)} here"
    if job.state is JobState.STARTING:
        _run(context, here)
    reason = f"{here}, from iteration {first} on"
    generations.begin_generation(context, list(range(world)), first_iteration=first, reason=reason)
    granting.go_on_with_ranks(context, here)


def _first(context: Context, members: list[Worker]) -> int:
    """The iteration that they begin with; where none was connected before, iterations may be repeated or skipped."""
    job = context.job
    first = max(each.rank.starts for each in members if each.rank is not None and not each.rank.counts)
    completed = [each.last_completed for each in members if each.rank is not None and each.rank.counts]
    if completed:
        return max(first, job.round.completed + 1, min(completed) + 1)
    if first <= job.round.completed:
        sentence = f"the ranks begin with iteration {first}: iterations {first} to {job.round.completed} are repeated"
        context.emit(RollBack, sentence, to_iteration=first, completed=job.round.completed)
    job.round.completed, job.round.observed, job.round.processed, job.round.transfers = first - 1, {}, {}, {}
    job.attachment.ends = {}
    return first


def _run(context: Context, reason: str) -> None:
    job, limit = context.job, context.spec.stop.iterations
    context.move_job(JobState.RUNNING, reason)
    job.running_ms = context.now_ms
    if limit is not None:
        job.end.stop_at, job.end.reason = limit, f"{limit} iterations were requested"


def _compare_release(context: Context, worker: Worker, release: str) -> None:
    """Another release is only logged: it ignores what it does not know."""
    if understands(release):
        context.close_flag(worker.index, RELEASES, f"{worker.title} is of release {release or RELEASE}")
        return
    found = (
        f"{worker.title} has Paceline {release}, the control plane {RELEASE}: install the same one beside the script"
    )
    context.open_flag(worker.index, RELEASES, "lasting", found, {"release": release})


def _refuse(context: Context, event: WorkerMessageReceived, code: str, detail: str) -> None:
    rejection = Rejection(code="stale" if code == "stale" else "unexpected", detail=detail, number=event.message.number)
    context.emit(RejectMessage, detail, role="worker", index=event.rank, instance=event.instance, rejection=rejection)


def _named(titles: list[str]) -> str:
    more = len(titles) - NAMED
    return ", ".join(titles[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _about(hello: RankHello) -> dict[str, str]:
    """A hello's description of its process, by name, for display."""
    named = {
        **hello.environment,
        "machine": hello.host,
        "device": hello.device,
        "launcher": hello.launcher,
        "pid": str(hello.pid) if hello.pid else "",
        "paceline": hello.release,
        "micro-batch": str(hello.micro_batch) if hello.micro_batch else "",
    }
    return {name: value for name, value in named.items() if value}
