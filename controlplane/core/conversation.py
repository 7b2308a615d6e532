"""Messages of processes: accepts or rejects the sender and the message, handles it, and resends orders.

A new incarnation of the log begins if a part of it was lost, or a replay differs from what had been published. All
current orders are sent again and replace the earlier ones. Orders that are known to have been published stay valid:
workers may already have used their grants.
"""

from collections.abc import Iterable
from typing import Final, Literal

from controlplane.core import (
    attached,
    changes,
    granting,
    hangs,
    iterations,
    membership,
    ordering,
    placing,
    recovery,
    scripts,
    sharing,
    starting,
)
from controlplane.core.commands import BeginIncarnation, MoveJob, RejectMessage, SetRoster, SetShares
from controlplane.core.context import Context, EventRefused
from controlplane.core.events import (
    ConnectionLost,
    IncarnationBegan,
    NumberedServerMessage,
    NumberedWorkerMessage,
    ServerMessageReceived,
    WorkerMessageReceived,
)
from controlplane.core.state import Job
from controlplane.core.states import (
    JOB_OVER,
    PROCESS_OVER,
    READY,
    UNREACHABLE,
    JobState,
    Process,
    ProcessState,
    Server,
    Worker,
    in_words,
)
from controlplane.protocol import RELEASE, understands
from controlplane.protocol.messages import (
    BlocksFilled,
    BlocksHanded,
    CheckpointSaved,
    Computed,
    CopiesHeld,
    Evaluation,
    FolderApart,
    IterationReport,
    MicroBatch,
    ProgressReport,
    Quiesced,
    RankHello,
    RestoreFailed,
    ServerHello,
    ServerReport,
    Stalled,
    WorkerFinished,
    WorkerHello,
)
from controlplane.protocol.orders import Orders, Rejection, Role

Code = Literal["stale", "unexpected", "out-of-order"]

OfIteration = IterationReport | ProgressReport | Computed
"""Messages about one iteration, which must have been granted."""

MOST_EARLY: Final = 200
"""Maximum number of kept messages per worker about iterations that are not granted here; a grant covers 50 iterations
by default.
"""

CheckpointReport = CheckpointSaved | FolderApart | RestoreFailed
"""Reports about checkpoints from the process that holds the parameters."""

ServerProgress = ServerReport | BlocksHanded | BlocksFilled | CheckpointReport

HELLOS: Final = (WorkerHello, RankHello, ServerHello)

WorkerProgress = ProgressReport | Computed | MicroBatch | Quiesced | CopiesHeld | CheckpointReport


def on_worker_message(context: Context, event: WorkerMessageReceived) -> None:
    """Handle a message of a worker."""
    message, worker = event.message, context.job.workers.get(event.rank)
    if (worker is None or worker.instance != event.instance) and not context.mode.owns_processes:
        worker = attached.instance_of(context, event)
    if worker is None or not _is_accepted(context, worker, "worker", event.rank, event.instance, message.number):
        return
    if not _is_next(context, worker, message):
        return
    if isinstance(message, IterationReport):
        _take_report(context, worker, message)
    elif isinstance(message, WorkerHello):
        _greet_worker(context, worker, message)
    elif isinstance(message, Evaluation):
        _take_evaluation(context, worker, message)
    elif isinstance(message, WorkerFinished):
        _take_finished(context, worker, message)
    elif isinstance(message, RankHello):
        _greet_rank(context, worker, message)
    elif isinstance(message, Stalled):
        hangs.on_stalled(context, worker, message)
    else:
        _handle_progress(context, worker, message)


def on_server_message(context: Context, event: ServerMessageReceived) -> None:
    """Handle a message of a server."""
    server = context.job.servers.get(event.index)
    if server is None or not _is_accepted(context, server, "server", event.index, event.instance, event.message.number):
        return
    if not _is_next(context, server, event.message):
        return
    if isinstance(event.message, ServerHello):
        _greet_server(context, server, event.message)
    else:
        _handle_server_progress(context, server, event.message)


def _handle_server_progress(context: Context, server: Server, message: ServerProgress) -> None:
    if isinstance(message, BlocksHanded):
        placing.on_handed(context, server, message)
    elif isinstance(message, BlocksFilled):
        recovery.on_filled(context, message)
    elif isinstance(message, ServerReport):
        server.generation, server.highest = message.generation, message.highest
        if message.late or message.missing:
            granting.note_updates(context, message)
    else:
        _handle_checkpoint(context, server, message)


def _handle_checkpoint(context: Context, process: Process, message: CheckpointReport) -> None:
    """Handle a report about the job's checkpoints from the process that holds the parameters."""
    if isinstance(message, CheckpointSaved):
        recovery.on_saved(context, process, message)
    elif isinstance(message, RestoreFailed):
        recovery.on_restore_failed(context, process, message)
    else:
        context.end_job(JobState.FAILED, f"{process.title}: {message.reason}")


def on_connection_lost(context: Context, event: ConnectionLost) -> None:
    """A control socket closed: its process is unreachable, and may reconnect."""
    process = context.job.process(event.role, event.index)
    if process is None or process.instance != event.instance:
        raise EventRefused(f"job {context.job.number}: {event.instance} lost its connection, but is not current")
    if process.state is ProcessState.READY:
        context.move_process(process, ProcessState.UNREACHABLE, "its control connection ended")


def _greet_worker(context: Context, worker: Worker, hello: WorkerHello) -> None:
    job = context.job
    if _is_of_other_release(context, worker, hello.release):
        return
    if (differs := _other_size(job, worker, hello)) is not None:
        found = f"{worker.title} has {hello.parameter_count} parameters, {differs}"
        context.end_job(JobState.FAILED, f"{found}: they run different workloads")
        return
    if _begins_otherwise(context, worker, job.workers.values(), hello.initial):
        return
    worker.parameters, worker.host, worker.port = hello.parameter_count, hello.host, hello.port
    worker.found, worker.skipped = hello.found, hello.skipped
    worker.own_samples = hello.own_samples
    job.samples.count = min(job.samples.count or hello.sample_count, hello.sample_count)
    _is_here(context, worker)
    if job.state is JobState.STARTING or job.starts.is_rebuilding:
        starting.begin_when_ready(context)
    elif job.counts(worker.index):
        ordering.issue_placement(context, worker, "hello")
        ordering.issue(context, worker, "hello")
    else:
        membership.on_hello(context, worker)


def _greet_rank(context: Context, worker: Worker, hello: RankHello) -> None:
    if context.mode.owns_processes:
        _reject(context, worker, "unexpected", "this job is native: no launcher attaches ranks to it", hello.number)
    elif attached.greet(context, worker, hello):
        for rank in list(context.job.generation.roster):
            take_early(context, context.job.workers[rank])
        iterations.complete(context)


def _is_of_other_release(context: Context, process: Process, release: str) -> bool:
    """Whether a process speaks an incompatible protocol; that ends the job with a message on what to do."""
    if understands(release):
        return False
    found = f"{process.title} is of release {release}, the control plane of {RELEASE}"
    context.end_job(JobState.FAILED, f"{found}: upgrade the machine of agent {process.agent} up to date")
    return True


def _begins_otherwise(context: Context, process: Process, others: Iterable[Process], initial: str) -> bool:
    """Whether two processes have different initial parameters; that ends the job with a message on what to do."""
    for other in others if initial else ():
        if other is not process and other.initial and other.initial != initial:
            found = f"{process.title} starts with different parameters than {other.title}"
            cure = "load them from one file, draw from torch, numpy or random alone, or set workload.init to seed"
            context.end_job(JobState.FAILED, f"{found}: the module has different initial values there; {cure}")
            return True
    process.initial = initial
    return False


def _other_size(job: Job, worker: Worker, hello: WorkerHello) -> str | None:
    """A process whose number of parameters differs from that of a connected worker, if there is one."""
    server = next(iter(job.servers.values()), None)
    if server is not None and server.tensor_sizes and sum(server.tensor_sizes) != hello.parameter_count:
        return f"the servers hold {sum(server.tensor_sizes)}"
    for other in job.workers.values() if server is None else ():
        if other is not worker and other.parameters not in (0, hello.parameter_count):
            return f"{other.title} has {other.parameters}"
    return None


def _greet_server(context: Context, server: Server, hello: ServerHello) -> None:
    job = context.job
    if _is_of_other_release(context, server, hello.release):
        return
    for other in job.servers.values():
        if other.tensor_sizes and other.tensor_sizes != hello.tensor_sizes:
            found = f"{server.title} has {sum(hello.tensor_sizes)} parameters, {other.title} {sum(other.tensor_sizes)}"
            context.end_job(JobState.FAILED, f"{found}: they run different workloads")
            return
    if _begins_otherwise(context, server, job.servers.values(), hello.initial):
        return
    server.host, server.port, server.tensor_sizes = hello.host, hello.port, hello.tensor_sizes
    server.found, server.skipped = hello.found, hello.skipped
    _is_here(context, server)
    if job.state is JobState.STARTING or job.starts.is_rebuilding:
        starting.begin_when_ready(context)
    else:
        ordering.issue_server_orders(context, server, "hello")
        recovery.advance_refill(context)


def _is_here(context: Context, process: Process) -> None:
    if process.state is ProcessState.ORDERED:
        context.move_process(process, ProcessState.READY, "it said hello")


def _take_report(context: Context, worker: Worker, report: IterationReport) -> None:
    job, rank = context.job, worker.rank
    if rank is not None and not rank.counts:
        _keep_early(worker, report)
        return
    if report.iteration <= worker.done:
        return
    if not _is_granted(job, worker, report.iteration, report.generation):
        granted = f"generation {job.generation.number}, iterations up to {worker.granted}"
        message = f"a report of iteration {report.iteration} in generation {report.generation}"
        _reject(context, worker, "unexpected", f"{message}, but {worker.title} is granted {granted}", report.number)
        _keep_early(worker, report)
        return
    iterations.on_report(context, worker, report)
    if rank is not None:
        attached.forget_old(job)
        hangs.close_at(context, report)


def _is_granted(job: Job, worker: Worker, iteration: int, generation: int = 0) -> bool:
    """Whether the worker was granted this iteration. If orders were lost, its report proves the grant."""
    if worker.rank is not None:
        return worker.rank.counts
    may = job.forgot or (iteration <= worker.granted and generation <= job.generation.number)
    return may and worker.index in job.generation.shares


def _keep_early(worker: Worker, message: OfIteration) -> None:
    worker.early = [*worker.early, message][-MOST_EARLY:]


def take_early(context: Context, worker: Worker) -> None:
    """Handle messages that a worker sent before its grant was known here, now that it is known.

    Their numbers were acknowledged, so they would not be resent.
    """
    early, worker.early = worker.early, []
    for message in early:
        generation = message.generation if isinstance(message, IterationReport) else 0
        if context.job.state in JOB_OVER or not _is_granted(context.job, worker, message.iteration, generation):
            continue
        if isinstance(message, IterationReport):
            _take_report(context, worker, message)
        else:
            _handle_progress(context, worker, message)


def _take_evaluation(context: Context, worker: Worker, evaluation: Evaluation) -> None:
    if not context.job.counts(worker.index):
        _reject(
            context, worker, "unexpected", f"{worker.title} scored a version, but does not count", evaluation.number
        )
        return
    iterations.on_evaluation(context, evaluation)


def _handle_progress(context: Context, worker: Worker, message: WorkerProgress) -> None:
    """Handle a message that a worker sends within or between iterations."""
    job = context.job
    if isinstance(message, Quiesced):
        changes.on_quiesced(context, worker, message)
    elif isinstance(message, CopiesHeld):
        recovery.on_copies(context, worker, message)
    elif isinstance(message, CheckpointReport):
        _handle_checkpoint(context, worker, message)
    elif isinstance(message, MicroBatch):
        granting.on_micro_batch(context, worker, message)
    elif not _is_granted(job, worker, message.iteration):
        text = f"a message about iteration {message.iteration}, but {worker.title} is granted iterations up to"
        _reject(context, worker, "unexpected", f"{text} {worker.granted}", message.number)
        _keep_early(worker, message)
    elif isinstance(message, ProgressReport):
        granting.on_progress(context, worker, message)
    else:
        granting.on_computed(context, worker, message)
        iterations.complete(context)


def _take_finished(context: Context, worker: Worker, message: WorkerFinished) -> None:
    job = context.job
    if worker.rank is not None:
        attached.on_loop_ended(context, worker, message)
        return
    if job.forgot and job.end.stop_at is None and context.mode.ends_together and job.counts(worker.index):
        granting.stop_at(context, message.iteration, f"{worker.title} had been ordered so by orders that were lost")
    if job.end.stop_at is None or not job.counts(worker.index) or worker.state is not ProcessState.READY:
        _reject(context, worker, "unexpected", f"{worker.title} was not ordered to finish", message.number)
        return
    if context.mode.ends_early(job, message.iteration):
        early = f"{worker.title} finished before iteration {message.iteration}, but the end is before {job.end.stop_at}"
        _reject(context, worker, "unexpected", early, message.number)
        return
    job.end.model_saved |= message.model_saved
    saved = ", the parameters are saved" if message.model_saved else ""
    context.move_process(worker, ProcessState.FINISHED, f"it reached iteration {message.iteration}{saved}")
    if job.state is JobState.PAUSED:
        granting.resume(context, f"{worker.title} has reached the end")
    ordering.issue(context, worker, "its end is noted")
    recovery.on_worker_gone(context, worker)
    granting.worker_finished(context, worker)


def _is_accepted(context: Context, process: Process, role: Role, index: int, instance: str, number: int) -> bool:
    """Whether this is the current, live instance; notifies the sender if not."""
    job = context.job
    if process.instance == instance and process.state not in PROCESS_OVER and job.state not in JOB_OVER:
        process.seen_ms = context.now_ms
        if process.state is UNREACHABLE:
            context.move_process(process, READY, "it speaks again")
            if isinstance(process, Worker) and process.rank is not None:
                attached.on_return(context, process)
        return True
    now = f"{process.instance} is {process.state}" if process.instance == instance else f"{process.instance} follows it"
    over = f"the job {in_words(job.state)}" if job.state in JOB_OVER else now
    detail = f"{instance} no longer counts: {over}"
    rejection = Rejection(code="stale", detail=detail, number=number)
    context.emit(RejectMessage, detail, role=role, index=index, instance=instance, rejection=rejection)
    return False


def _is_next(context: Context, process: Process, message: NumberedWorkerMessage | NumberedServerMessage) -> bool:
    """Whether to handle the message: the sender's next one, or a repeated hello; a gap is rejected."""
    number, due = message.number, process.last_number + 1
    if number == due:
        process.last_number = number
        return True
    if number < due:
        return isinstance(message, HELLOS)
    detail = f"message {number} of {process.instance} came before {due}: send from there again"
    _reject(context, process, "out-of-order", detail, due, incarnation=context.job.incarnation)
    return False


def _reject(context: Context, process: Process, code: Code, detail: str, number: int, *, incarnation: int = 0) -> None:
    rejection = Rejection(code=code, detail=detail, number=number, incarnation=incarnation)
    context.emit(
        RejectMessage, detail, role=process.role, index=process.index, instance=process.instance, rejection=rejection
    )


def on_incarnation_began(context: Context, event: IncarnationBegan) -> None:
    """Adopt the published orders, and issue all current orders and states again."""
    job = context.job
    if event.incarnation <= job.incarnation:
        found = f"incarnation {event.incarnation} began, but it is in incarnation {job.incarnation}"
        raise EventRefused(f"job {job.number}: {found}")
    job.incarnation = event.incarnation
    job.forgot |= event.forgot
    job.resumed_ms = context.now_ms
    flags = sorted(job.flags.open.values())
    context.emit(BeginIncarnation, event.reason, incarnation=event.incarnation, after=event.after, flags=flags)
    _adopt(context, event.published)
    for rank in list(job.generation.roster):
        take_early(context, job.workers[rank])
    reason = f"incarnation {event.incarnation}: {event.reason}"
    _report_processes(context, reason)
    if job.state not in JOB_OVER:
        context.emit(MoveJob, reason, state=job.state, awaited=job.awaited)
        _report_roster(context, reason)


def _adopt(context: Context, published: dict[int, Orders]) -> None:
    job = context.job
    current = {rank: orders for rank, orders in published.items() if job.counts(rank)}
    for rank, orders in current.items():
        sharing.raise_watermark(job.workers[rank], max(job.workers[rank].watermark, orders.watermark))
    versions = [orders.shares_version for orders in published.values()]
    job.attachment.version = max([job.attachment.version, *versions])
    context.mode.take_over(job, current)


def _report_processes(context: Context, reason: str) -> None:
    job = context.job
    for process in (*job.workers.values(), *job.servers.values()):
        if process.over or job.state in JOB_OVER:
            context.stop_process(process, reason)
        else:
            context.start_process(process, reason)
        context.report_process(process, reason)
    scripts.report(context, reason)


def _report_roster(context: Context, reason: str) -> None:
    job = context.job
    if not job.generation.number:
        return
    context.emit(
        SetRoster,
        reason,
        generation=job.generation.number,
        first_iteration=job.generation.first_iteration,
        ranks=list(job.generation.roster),
    )
    context.emit(
        SetShares,
        reason,
        generation=job.generation.number,
        iteration=job.generation.share_from,
        policy=job.synchronization.batching.name,
        shares=dict(job.generation.shares),
    )
    for rank in job.generation.roster:
        ordering.issue_placement(context, job.workers[rank], reason)
    ordering.issue_all(context, reason)
    for server in job.live_servers:
        ordering.issue_server_orders(context, server, reason)
