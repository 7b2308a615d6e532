"""What processes say: who may speak, which message is next, and what each leads to."""

from collections.abc import Iterable
from typing import Final, Literal

from controlplane.core import (
    arrivals,
    changes,
    checkpoints,
    ending,
    iterations,
    moving,
    partial,
    pausing,
    refill,
    releases,
    roster,
)
from controlplane.core.commands import RejectMessage
from controlplane.core.events import ConnectionLost, ServerHeard, WorkerHeard
from controlplane.core.handling import EventRefused, Handling
from controlplane.core.records import Process, Server, Worker
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, PROCESS_OVER, JobState, ProcessState, in_words
from controlplane.protocol import RELEASE
from controlplane.protocol.messages import (
    BlocksFilled,
    BlocksHanded,
    CheckpointSaved,
    Computed,
    CopiesHeld,
    Evaluation,
    FolderApart,
    Held,
    IterationReport,
    MicroBatch,
    ProgressReport,
    RankHello,
    RestoreFailed,
    ServerHello,
    ServerReport,
    WorkerFinished,
    WorkerHello,
)
from controlplane.protocol.orders import Rejection, Role

Code = Literal["stale", "unexpected", "out-of-order"]

OfIteration = IterationReport | ProgressReport | Computed
"""What a worker says of one iteration, for which it needs leave."""

MOST_EARLY: Final = 200
"""The latest words of a worker without leave that are kept; leave reaches 50 iterations unless asked otherwise."""


KeepersWord = CheckpointSaved | FolderApart | RestoreFailed
"""What whoever holds the parameters says of checkpoints."""

ServerWord = ServerReport | BlocksHanded | BlocksFilled | KeepersWord
WorkerWord = ProgressReport | Computed | MicroBatch | Held | CopiesHeld | KeepersWord


def on_worker_heard(handling: Handling, event: WorkerHeard) -> None:
    """A worker said something."""
    worker = handling.job.workers.get(event.rank)
    if worker is None or not _may_speak(handling, worker, "worker", event.rank, event.instance, event.message.number):
        return
    message = event.message
    if not _is_next(handling, worker, message.number, again=isinstance(message, WorkerHello)):
        return
    if isinstance(message, IterationReport):
        _take_report(handling, worker, message)
    elif isinstance(message, WorkerHello):
        _greet_worker(handling, worker, message)
    elif isinstance(message, Evaluation):
        _take_evaluation(handling, worker, message)
    elif isinstance(message, WorkerFinished):
        _take_finished(handling, worker, message)
    elif isinstance(message, RankHello):
        _reject(handling, worker, "unexpected", "this job is native: no launcher attaches ranks to it", message.number)
    else:
        _take_word(handling, worker, message)


def on_server_heard(handling: Handling, event: ServerHeard) -> None:
    """A server said something."""
    server = handling.job.servers.get(event.index)
    if server is None or not _may_speak(handling, server, "server", event.index, event.instance, event.message.number):
        return
    if isinstance(event.message, ServerHello):
        if _is_next(handling, server, event.message.number, again=True):
            _greet_server(handling, server, event.message)
    elif _is_next(handling, server, event.message.number):
        _take_server_word(handling, server, event.message)


def _take_server_word(handling: Handling, server: Server, message: ServerWord) -> None:
    if isinstance(message, BlocksHanded):
        moving.on_handed(handling, server, message)
    elif isinstance(message, BlocksFilled):
        refill.on_filled(handling, message)
    elif isinstance(message, ServerReport):
        server.generation, server.highest = message.generation, message.highest
        if message.late or message.missing:
            partial.note_updates(handling, message)
    else:
        _take_keepers_word(handling, server, message)


def _take_keepers_word(handling: Handling, process: Process, message: KeepersWord) -> None:
    """What whoever holds the parameters says of the checkpoints of the job."""
    if isinstance(message, CheckpointSaved):
        checkpoints.on_saved(handling, process, message)
    elif isinstance(message, RestoreFailed):
        checkpoints.on_restore_failed(handling, process, message)
    else:
        ending.end(handling, JobState.FAILED, f"{process.title}: {message.reason}")


def on_connection_lost(handling: Handling, event: ConnectionLost) -> None:
    """A control socket ended: its process is unreachable, and may come back."""
    process = handling.job.process(event.role, event.index)
    if process is None or process.instance != event.instance:
        raise EventRefused(f"job {handling.job.number}: {event.instance} lost its connection, but is not current")
    if process.state is ProcessState.READY:
        handling.move_process(process, ProcessState.UNREACHABLE, "its control connection ended")


def _greet_worker(handling: Handling, worker: Worker, hello: WorkerHello) -> None:
    job = handling.job
    if _is_of_other_release(handling, worker, hello.release):
        return
    if (differs := _other_size(job, worker, hello)) is not None:
        found = f"{worker.title} has {hello.parameter_count} parameters, {differs}"
        ending.end(handling, JobState.FAILED, f"{found}: they run different workloads")
        return
    if _begins_otherwise(handling, worker, job.workers.values(), hello.initial):
        return
    worker.parameters, worker.host, worker.port = hello.parameter_count, hello.host, hello.port
    worker.found, worker.skipped = hello.found, hello.skipped
    worker.own_samples = hello.own_samples
    job.samples.count = min(job.samples.count or hello.sample_count, hello.sample_count)
    _is_here(handling, worker)
    if job.state is JobState.STARTING or job.lives.is_rebuilding:
        roster.begin_when_ready(handling)
    elif job.counts(worker.index):
        releases.issue_placement(handling, worker, "hello")
        releases.issue(handling, worker, "hello")
    else:
        arrivals.on_hello(handling, worker)


def _is_of_other_release(handling: Handling, process: Process, release: str) -> bool:
    """Whether a process cannot be spoken with; that ends the job, and says what to do."""
    if release in ("", RELEASE):
        return False
    found = f"{process.title} is of release {release}, the control plane of {RELEASE}"
    ending.end(handling, JobState.FAILED, f"{found}: bring the machine of agent {process.agent} up to date")
    return True


def _begins_otherwise(handling: Handling, process: Process, others: Iterable[Process], initial: str) -> bool:
    """Whether a process made other first parameters than one like it; that ends the job, and says what to do."""
    for other in others:
        if other is not process and initial and other.initial and other.initial != initial:
            found = f"{process.title} begins with other parameters than {other.title}"
            cure = "load them from one file, draw from torch, numpy or random alone, or set workload.init to seed"
            ending.end(handling, JobState.FAILED, f"{found}: the module is built with other values there; {cure}")
            return True
    process.initial = initial
    return False


def _other_size(job: Job, worker: Worker, hello: WorkerHello) -> str | None:
    """Who has another number of parameters than a worker that said hello, if anybody has."""
    server = next(iter(job.servers.values()), None)
    if server is not None and server.tensor_sizes and sum(server.tensor_sizes) != hello.parameter_count:
        return f"the servers hold {sum(server.tensor_sizes)}"
    for other in job.workers.values() if server is None else ():
        if other is not worker and other.parameters not in (0, hello.parameter_count):
            return f"{other.title} has {other.parameters}"
    return None


def _greet_server(handling: Handling, server: Server, hello: ServerHello) -> None:
    job = handling.job
    if _is_of_other_release(handling, server, hello.release):
        return
    for other in job.servers.values():
        if other.tensor_sizes and other.tensor_sizes != hello.tensor_sizes:
            found = f"{server.title} has {sum(hello.tensor_sizes)} parameters, {other.title} {sum(other.tensor_sizes)}"
            ending.end(handling, JobState.FAILED, f"{found}: they run different workloads")
            return
    if _begins_otherwise(handling, server, job.servers.values(), hello.initial):
        return
    server.host, server.port, server.tensor_sizes = hello.host, hello.port, hello.tensor_sizes
    server.found, server.skipped = hello.found, hello.skipped
    _is_here(handling, server)
    if job.state is JobState.STARTING or job.lives.is_rebuilding:
        roster.begin_when_ready(handling)
    else:
        releases.issue_server_orders(handling, server, "hello")
        refill.advance(handling)


def _is_here(handling: Handling, process: Process) -> None:
    if process.state is ProcessState.ORDERED:
        handling.move_process(process, ProcessState.READY, "it said hello")


def _take_report(handling: Handling, worker: Worker, report: IterationReport) -> None:
    job = handling.job
    if report.iteration <= worker.done:
        return
    if not _has_leave(job, worker, report.iteration, report.generation):
        leave = f"generation {job.generation.number}, iterations up to {worker.granted}"
        said = f"a report of iteration {report.iteration} in generation {report.generation}"
        _reject(handling, worker, "unexpected", f"{said}, but {worker.title} has leave for {leave}", report.number)
        _keep_early(worker, report)
        return
    iterations.on_report(handling, worker, report)


def _has_leave(job: Job, worker: Worker, iteration: int, generation: int = 0) -> bool:
    """Whether the worker may be so far; where orders were forgotten, what it has done is proof of its leave."""
    may = job.forgot or (iteration <= worker.granted and generation <= job.generation.number)
    return may and worker.index in job.generation.shares


def _keep_early(worker: Worker, said: OfIteration) -> None:
    worker.early = [*worker.early, said][-MOST_EARLY:]


def take_early(handling: Handling, worker: Worker) -> None:
    """Take what the worker had said before its leave was known here, now that it may be.

    Its numbers were heard, and saying it again would change nothing.
    """
    early, worker.early = worker.early, []
    for said in early:
        generation = said.generation if isinstance(said, IterationReport) else 0
        if handling.job.state in JOB_OVER or not _has_leave(handling.job, worker, said.iteration, generation):
            continue
        if isinstance(said, IterationReport):
            _take_report(handling, worker, said)
        else:
            _take_word(handling, worker, said)


def _take_evaluation(handling: Handling, worker: Worker, evaluation: Evaluation) -> None:
    if not handling.job.counts(worker.index):
        _reject(
            handling, worker, "unexpected", f"{worker.title} scored a version, but does not count", evaluation.number
        )
        return
    iterations.on_evaluation(handling, evaluation)


def _take_word(handling: Handling, worker: Worker, message: WorkerWord) -> None:
    """What a worker says within or between iterations."""
    job = handling.job
    if isinstance(message, Held):
        changes.on_held(handling, worker, message)
    elif isinstance(message, CopiesHeld):
        refill.on_copies(handling, worker, message)
    elif isinstance(message, KeepersWord):
        _take_keepers_word(handling, worker, message)
    elif isinstance(message, MicroBatch):
        partial.on_micro_batch(handling, worker, message)
    elif not _has_leave(job, worker, message.iteration):
        said = f"word of iteration {message.iteration}, but {worker.title} has leave for iterations up to"
        _reject(handling, worker, "unexpected", f"{said} {worker.granted}", message.number)
        _keep_early(worker, message)
    elif isinstance(message, ProgressReport):
        partial.on_progress(handling, worker, message)
    else:
        partial.on_computed(handling, worker, message)
        iterations.complete(handling)
        changes.settle(handling)


def _take_finished(handling: Handling, worker: Worker, message: WorkerFinished) -> None:
    job = handling.job
    if job.forgot and job.end.stop_at is None and handling.chosen.gate is None and job.counts(worker.index):
        releases.stop_at(handling, message.iteration, f"{worker.title} had been told so by orders that were lost")
    if job.end.stop_at is None or not job.counts(worker.index) or worker.state is not ProcessState.READY:
        _reject(handling, worker, "unexpected", f"{worker.title} was not told to finish", message.number)
        return
    if handling.chosen.gate is None and message.iteration < job.end.stop_at:
        early = f"{worker.title} finished before iteration {message.iteration}, but the end is before {job.end.stop_at}"
        _reject(handling, worker, "unexpected", early, message.number)
        return
    job.end.model_saved |= message.model_saved
    saved = ", the parameters are saved" if message.model_saved else ""
    handling.move_process(worker, ProcessState.FINISHED, f"it reached iteration {message.iteration}{saved}")
    if job.state is JobState.PAUSED:
        pausing.resume(handling, f"{worker.title} has reached the end")
    releases.issue(handling, worker, "its end is noted")
    refill.on_worker_gone(handling, worker)
    releases.worker_finished(handling, worker)


def _may_speak(handling: Handling, process: Process, role: Role, index: int, instance: str, number: int) -> bool:
    """Whether this instance is the current, live one; tells it if not."""
    job = handling.job
    if process.instance == instance and process.state not in PROCESS_OVER and job.state not in JOB_OVER:
        process.seen_ms = handling.now_ms
        if process.state is ProcessState.UNREACHABLE:
            handling.move_process(process, ProcessState.READY, "it speaks again")
        return True
    now = f"{process.instance} is {process.state}" if process.instance == instance else f"{process.instance} follows it"
    over = f"the job {in_words(job.state)}" if job.state in JOB_OVER else now
    detail = f"{instance} no longer counts: {over}"
    rejection = Rejection(code="stale", detail=detail, number=number)
    handling.give(RejectMessage, detail, role=role, index=index, instance=instance, rejection=rejection)
    return False


def _is_next(handling: Handling, process: Process, number: int, *, again: bool = False) -> bool:
    """Whether to take the message: the next of its sender, or one seen before if it counts ``again``; a gap is told."""
    if number <= process.heard:
        return again
    if number > process.heard + 1:
        detail = f"message {number} of {process.instance} came before {process.heard + 1}: send from there again"
        _reject(handling, process, "out-of-order", detail, process.heard + 1)
        return False
    process.heard = number
    return True


def _reject(handling: Handling, process: Process, code: Code, detail: str, number: int) -> None:
    rejection = Rejection(code=code, detail=detail, number=number)
    handling.give(
        RejectMessage, detail, role=process.role, index=process.index, instance=process.instance, rejection=rejection
    )
