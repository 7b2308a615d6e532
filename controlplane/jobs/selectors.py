"""Reads of jobs: lists, one job, and its parts."""

from collections.abc import Iterable, Mapping

import msgspec
from django.db.models import QuerySet
from msgspec.structs import replace

from controlplane.jobs.models import Decision, Flag, Job, Process
from controlplane.jobs.stored_specs import stored_spec, stored_specs
from controlplane.jobs.viewing import visible
from controlplane.protocol.messages import ProcessName
from controlplane.protocol.orders import Role
from controlplane.protocol.spec import Choice, JobSpec, Synchronization


def jobs() -> QuerySet[Job]:
    """Every job that the current user may see, the newest first; including simulated runs."""
    return visible(Job.objects.select_related("submitted_by", "team")).order_by("-id")


def submitted_jobs() -> QuerySet[Job]:
    """Jobs that were submitted to run on machines: without simulated runs."""
    return jobs().filter(simulation=None)


def job_synchronization(job: Job) -> Synchronization:
    """The four current policies: the spec's, replaced by those changes that have taken effect.

    Raises:
        UnreadableSpec: if this release refuses its spec.
    """
    return jobs_synchronization([job], {job.pk: stored_spec(job)})[job.pk]


def jobs_synchronization(jobs: Iterable[Job], specs: Mapping[int, JobSpec] | None = None) -> dict[int, Synchronization]:
    """The same for many jobs, by id, with one query. Jobs with a spec that this release refuses are omitted."""
    read = stored_specs(jobs)[0] if specs is None else specs
    chosen = {job: spec.synchronization for job, spec in read.items()}
    changes = Decision.objects.filter(job_id__in=chosen, kind="change-policies").order_by("incarnation", "sequence")
    for job_id, payload in changes.values_list("job_id", "payload"):
        chosen[job_id] = replace(chosen[job_id], **msgspec.convert(payload["choices"], dict[str, Choice]))
    return chosen


def job_processes(job_id: int) -> QuerySet[Process]:
    """Every instance of every process of the job."""
    return Process.objects.filter(job_id=job_id).select_related("agent").order_by("-role", "index", "id")


def process_is_of(agent: int, name: ProcessName) -> bool:
    """Whether this process instance runs or ran on that machine."""
    life = {"job_id": name.job, "role": name.role, "index": name.index, "instance": name.instance}
    return Process.objects.filter(agent_id=agent, **life).exists()


def processes(role: Role) -> QuerySet[Process]:
    """All workers, or all servers, of all jobs that were submitted to run, the newest job first."""
    rows = visible(Process.objects.filter(role=role, job__simulation=None), "job__team")
    return rows.select_related("agent", "job").order_by("-job_id", "index", "id")


def job_decisions(job_id: int) -> QuerySet[Decision]:
    """The engine's decisions, the latest first."""
    return Decision.objects.filter(job_id=job_id).order_by("-incarnation", "-sequence")


def job_flags(job_id: int) -> QuerySet[Flag]:
    """Findings about the job's workers, the latest first."""
    return Flag.objects.filter(job_id=job_id).order_by("-opened_at", "-id")


def job_placement(job_id: int) -> Decision | None:
    """The current placement decision."""
    return job_decisions(job_id).filter(kind="set-placement").first()
