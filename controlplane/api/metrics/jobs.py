"""Metrics of jobs that have started and are not finished, and of their workers and servers.

They come from counters and rows that ingest maintains, with a fixed number of queries for jobs of any length.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from django.utils import timezone

from controlplane.api.metrics.families import Families, Labels, measured_name
from controlplane.core.barriers import is_full
from controlplane.core.states import AT_WORK, JobState, ProcessState
from controlplane.jobs.autopilots import decision_counts
from controlplane.jobs.machines import machine_name
from controlplane.jobs.models import Flag, Job, Process
from controlplane.jobs.selectors import jobs_synchronization
from controlplane.jobs.viewing import visible
from controlplane.policies import registry
from controlplane.protocol.measurements import OF_WORKERS
from controlplane.protocol.spec import CHOICES, SpecError, Synchronization
from controlplane.runtime.job_failures import isolated_step
from controlplane.telemetry.models import Tally, WorkerSums
from controlplane.telemetry.present_costs import pressing
from controlplane.telemetry.tallies import BOUNDS_MS, DECISION_S, ITERATION_S, NEWEST, OF_JOB

MOST_JOBS: Final = 50
"""Maximum number of jobs per scrape; the newest take precedence."""

MOST_PROCESSES: Final = 1_000
"""Maximum number of workers and servers over all jobs; those of the newest jobs take precedence."""

STARTED: Final = (JobState.STARTING, JobState.RUNNING, JobState.PAUSED, JobState.FINISHING)

PHASES: Final = ("data", "compute", "push", "pull", "waiting", "coordination")

_KEPT: Final = [each for each in OF_WORKERS if each.name in NEWEST]

Buckets = Mapping[int, tuple[int, float]]
"""Count and sum, by upper bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The rows of one scrape."""

    jobs: Sequence[Job]
    choices: Mapping[int, Synchronization]
    processes: Mapping[int, Sequence[Process]]
    """For each job: the newest instance of each worker and server."""
    restarts: Mapping[tuple[int, str, int], int]
    sums: Mapping[tuple[int, int], WorkerSums]
    buckets: Mapping[tuple[int, str, int], Buckets]
    flags: Mapping[int, int]
    autopilots: Mapping[int, Mapping[str, int]]
    left_out: Mapping[str, int]


def read_jobs() -> Found:
    """Jobs that the scraper's user may see, with a row for each metric, within the bounds."""
    started = visible(Job.objects.filter(state__in=STARTED, simulation=None)).order_by("-pk")
    jobs = list(started[:MOST_JOBS])
    numbers = [job.pk for job in jobs]
    processes, restarts = _processes(numbers)
    there = sum(map(len, processes.values()))
    kept, room = {}, MOST_PROCESSES
    for number in numbers:
        kept[number] = processes.get(number, [])[:room]
        room -= len(kept[number])
    shown = {(job, each.index) for job, found in kept.items() for each in found if each.role == "worker"}
    open_flags = pressing(Flag.objects.filter(job__in=numbers, closed_at=None), timezone.now())
    return Found(
        jobs=jobs,
        choices=jobs_synchronization(jobs),
        processes=kept,
        restarts=restarts,
        sums={(row.job_id, row.rank): row for row in WorkerSums.objects.filter(job__in=numbers)},
        buckets=_buckets(numbers, shown),
        flags=Counter(flag.job_id for flag in open_flags),
        autopilots=decision_counts([job.pk for job in jobs if job.spec.get("autopilot")]),
        left_out={
            "jobs": 0 if len(jobs) < MOST_JOBS else started.count() - len(jobs),
            "processes": there - sum(map(len, kept.values())),
        },
    )


def describe_jobs(families: Families, found: Found) -> None:
    """Add every metric of these jobs, their workers and servers."""
    for job in found.jobs:
        with isolated_step("metrics", job.pk):
            _describe_job(families, job, found)
            _describe_processes(families, job, found)


def _describe_processes(families: Families, job: Job, found: Found) -> None:
    processes = found.processes[job.pk]
    workers = [each for each in processes if each.role == "worker"]
    ahead = _ahead(workers, found.choices.get(job.pk))
    for process in processes:
        labels = {"job_id": str(job.pk), process.role: f"{process.role[0]}{process.index}"}
        _describe_process(families, process, labels, found)
        if process.role == "worker":
            _describe_worker(families, process, labels, found, ahead.get(process.index))
        else:
            _describe_server(families, process, labels)


def _processes(jobs: Collection[int]) -> tuple[dict[int, list[Process]], Counter[tuple[int, str, int]]]:
    newest: dict[tuple[int, str, int], Process] = {}
    seen: Counter[tuple[int, str, int]] = Counter()
    rows = Process.objects.filter(job__in=jobs).select_related("agent").order_by("id")
    for row in rows.defer("emulate", "block_times", "reason", "agent__environment"):
        newest[row.job_id, row.role, row.index] = row
        seen[row.job_id, row.role, row.index] += 1
    found: dict[int, list[Process]] = defaultdict(list)
    for key in sorted(newest, key=lambda key: (key[0], key[1] != "worker", key[2])):
        found[key[0]].append(newest[key])
    return found, Counter({key: count - 1 for key, count in seen.items()})


def _buckets(jobs: Collection[int], shown: Collection[tuple[int, int]]) -> dict[tuple[int, str, int], Buckets]:
    found: dict[tuple[int, str, int], dict[int, tuple[int, float]]] = defaultdict(dict)
    rows = Tally.objects.filter(job__in=jobs).values_list("job_id", "name", "rank", "upto_ms", "count", "seconds")
    for job, name, rank, upto_ms, count, seconds in rows:
        if rank == OF_JOB or (job, rank) in shown:
            found[job, name, rank][upto_ms] = (count, seconds)
    return dict(found)


def _ahead(workers: Sequence[Process], choice: Synchronization | None) -> dict[int, int]:
    """By rank: iterations that a worker is ahead of the slowest of the roster; empty under a full barrier.

    Also empty if this release does not have the barrier, or cannot read the stored spec.
    """
    try:
        barrier = registry.resolve("barrier", choice.barrier) if choice else None
    except SpecError:
        barrier = None
    if barrier is None:
        return {}
    here = {each.index: each.iteration for each in workers if each.counts_from is not None and each.state in AT_WORK}
    slowest = min(here.values(), default=0)
    full = is_full(barrier)
    return {rank: 0 if full else iteration - slowest for rank, iteration in here.items()}


def _describe_job(families: Families, job: Job, found: Found) -> None:
    labels, choice = {"job_id": str(job.pk)}, found.choices.get(job.pk)
    chosen = {name: getattr(choice, name).name if choice else "" for name in CHOICES}
    about = labels | {"name": job.name, "launch": job.launch} | chosen
    families.gauge("paceline_job_info", "A started job, with its current policies.", 1, about)
    families.gauge("paceline_job_state", "1 for the job's current state.", 1, labels | {"state": job.state})
    since = job.state_since.timestamp()
    families.gauge("paceline_job_state_since_timestamp_seconds", "Start time of its current state.", since, labels)
    text = "Iterations that all workers of the roster have reported; lower after a rollback to a checkpoint."
    families.gauge("paceline_job_iteration", text, job.iteration, labels)
    families.counter("paceline_job_samples", "Samples processed.", job.samples, labels)
    for part in ("busy", "waiting", "coordination"):
        text = "Worker time: busy, waiting for other workers, and waiting for the control plane."
        families.counter("paceline_job_worker_seconds", text, getattr(job, f"{part}_s"), labels | {"part": part})
    families.gauge("paceline_job_evaluation_loss", "Loss of the last evaluation.", job.loss, labels)
    families.gauge("paceline_job_evaluation_accuracy_ratio", "Accuracy of the last evaluation.", job.accuracy, labels)
    families.gauge(
        "paceline_job_flags_open",
        "Open straggler findings that currently cost time and are neither acknowledged nor muted.",
        found.flags.get(job.pk, 0),
        labels,
    )
    for outcome, count in found.autopilots.get(job.pk, {}).items():
        text = "Comparisons of alternatives by the job's autopilot, and reverted switches."
        families.counter("paceline_job_autopilot_decisions", text, count, labels | {"outcome": outcome})
    families.histogram(
        "paceline_job_decision_seconds",
        "Time from the arrival of a message to the resulting orders, by the job's log.",
        found.buckets.get((job.pk, DECISION_S, OF_JOB), {}),
        BOUNDS_MS[DECISION_S],
        labels,
    )


def _describe_process(families: Families, process: Process, labels: Labels, found: Found) -> None:
    role, machine = process.role, machine_name(process)
    families.gauge(f"paceline_{role}_info", "Its machine.", 1, {**labels, "machine": machine})
    ready = int(process.state in (ProcessState.READY, ProcessState.FINISHED))
    families.gauge(f"paceline_{role}_up", "1 while it is connected or finished.", ready, labels)
    restarts = found.restarts[process.job_id, role, process.index]
    families.counter(f"paceline_{role}_restarts", "Number of restarts.", restarts, labels)


def _describe_worker(families: Families, process: Process, labels: Labels, found: Found, ahead: int | None) -> None:
    families.gauge("paceline_worker_share_samples", "Its batch size.", process.share, labels)
    text = "Staleness: iterations that it has reported beyond the slowest worker."
    families.gauge("paceline_worker_iterations_ahead", text, ahead, labels)
    sums = found.sums.get((process.job_id, process.index))
    if sums is None:
        return
    families.gauge(
        "paceline_worker_last_report_timestamp_seconds", "Time of its last report.", sums.at_ms / 1000, labels
    )
    families.counter("paceline_worker_samples", "Samples processed.", sums.samples, labels)
    for phase in PHASES:
        families.counter(
            "paceline_worker_phase_seconds",
            "Its time by phase; the phases add up to its iteration time.",
            getattr(sums, f"{phase}_s"),
            labels | {"phase": phase},
        )
    families.histogram(
        "paceline_worker_iteration_seconds",
        "Its iteration times.",
        found.buckets.get((process.job_id, ITERATION_S, process.index), {}),
        BOUNDS_MS[ITERATION_S],
        labels,
    )
    for each in _KEPT:
        families.gauge(
            measured_name("worker", each), f"Last reported value: {each.title}.", sums.newest.get(each.name), labels
        )


def _describe_server(families: Families, process: Process, labels: Labels) -> None:
    families.gauge("paceline_server_held_bytes", "Bytes of parameters on the server.", process.held_bytes, labels)
    text = "Median duration of a worker's last exchange with it."
    families.gauge("paceline_server_push_seconds", text, process.push_s, labels)
    families.gauge("paceline_server_pull_seconds", text, process.pull_s, labels)
