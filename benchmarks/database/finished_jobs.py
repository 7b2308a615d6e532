"""Rows of a large installation that has run for a long time: online machines and finished jobs."""

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from benchmarks.database.empty_database import measured_job
from benchmarks.database.history import BEGAN, write_reports
from controlplane.core.states import JobState, ProcessState
from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job, Process

LASTED = timedelta(hours=1)
OFFER = {"emulate": {"samples_per_second": 250}}


def add_machines(count: int) -> list[Agent]:
    """Machines of one worker slot each."""
    rows = [
        Agent(
            name=f"machine-{index:04}",
            credential_digest=f"{index:064}",
            state=Agent.State.ONLINE,
            slots=[OFFER],
            labels={"class": "even" if index % 2 == 0 else "odd"},
            cpu_count=4,
            memory_bytes=8 << 30,
            seen_at=timezone.now(),
        )
        for index in range(count)
    ]
    return Agent.objects.bulk_create(rows)


def add_jobs(count: int) -> None:
    """Add jobs without reports."""
    for _ in range(count):
        _over(workers=8, iterations=100)


def add_job(workers: int, iterations: int, machines: list[Agent]) -> Job:
    """Add a job with all reports, with its workers on these machines in turn."""
    job = _over(workers=workers, iterations=iterations)
    Process.objects.bulk_create(
        Process(
            job=job,
            role="worker",
            index=rank,
            instance=f"w{rank}.0.1",
            agent=machines[rank % len(machines)],
            state=ProcessState.FINISHED,
            state_since=BEGAN + LASTED,
            started_at=BEGAN,
            ended_at=BEGAN + LASTED,
            share=64,
            iteration=iterations - 1,
        )
        for rank in range(workers)
    )
    write_reports(job.pk, workers, iterations)
    return job


def _over(*, workers: int, iterations: int) -> Job:
    """Create a job that is already over."""
    with transaction.atomic():
        job = measured_job(workers)
        job.state, job.state_since = JobState.SUCCEEDED, BEGAN + LASTED
        job.iteration, job.started_at, job.finished_at = iterations, BEGAN, BEGAN + LASTED
        job.samples, job.busy_s = 64 * workers * iterations, float(workers * iterations)
        job.save()
    return job
