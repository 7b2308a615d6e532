"""Checks after a fault test: the database against what the simulated workers recorded."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from django.db.models import Sum

from benchmarks.faults.simulated_processes import Records
from controlplane.core.states import ProcessState
from controlplane.jobs.models import Job, Process
from controlplane.policies.registry import resolve
from controlplane.runtime.recorded_jobs import recorded_decisions, recorded_log
from controlplane.simulator.replay import replay
from controlplane.telemetry.stored_reports import reports_of


@dataclass(slots=True, kw_only=True)
class Verdict:
    """Violated expectations."""

    sent: int = 0
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    unknown: int = 0
    """Rows of reports that were never sent."""
    evicted: list[str] = field(default_factory=list)
    replays: list[str] = field(default_factory=list)
    """Differences between the replay of the stored log and the stored decisions."""
    decisions: int = 0
    """Number of decisions that the replay reproduced."""
    incarnations: dict[int, int] = field(default_factory=dict)
    """By job: number of incarnations after the first."""

    @property
    def failures(self) -> list[str]:
        """The violations as sentences."""
        found = [*self.evicted, *self.replays]
        for count, what in ((self.lost, "were lost"), (self.doubled, "count twice"), (self.unknown, "were never sent")):
            if count:
                found.append(f"{count} reports {what}")
        return found


def judge(jobs: list[int], records: Records) -> Verdict:
    """Compare after everything has been copied and the jobs are over."""
    verdict = Verdict(sent=len(records.reports))
    found = Counter(key for job in jobs for key in _stored(job))
    verdict.rows = sum(found.values())
    verdict.lost = sum(key not in found for key in records.reports)
    verdict.unknown = sum(key not in records.reports for key in found)
    counted = Job.objects.filter(pk__in=jobs).aggregate(whole=Sum("samples"))["whole"] or 0
    said = sum(samples for key, samples in records.reports.items() if key in found)
    verdict.doubled = sum(count - 1 for count in found.values()) + (counted != said)
    for process in Process.objects.filter(job_id__in=jobs, state=ProcessState.LOST):
        verdict.evicted.append(f"job {process.job_id}: {process.instance} {process.reason}, but it was alive")
    for job in Job.objects.filter(pk__in=jobs).order_by("pk"):
        _replay(job, verdict)
    return verdict


def _stored(job: int) -> Iterator[tuple[int, str, int, int]]:
    """Job, instance, generation and iteration of each report that is stored."""
    for batch in reports_of(job):
        columns = (batch.columns[name].tolist() for name in ("instance", "generation", "iteration"))
        for sender, generation, iteration in zip(*columns, strict=True):
            yield job, batch.instances[sender], generation, iteration


def _replay(job: Job, verdict: Verdict) -> None:
    verdict.incarnations[job.pk] = job.incarnation
    found = replay(recorded_log(job.pk), recorded_decisions(job.pk), job=job.pk, resolve=resolve, is_over=job.is_over)
    verdict.decisions += found.decisions
    if found.difference is not None:
        verdict.replays.append(f"job {job.pk}: {found.difference.sentence}")
