"""Reads of jobs: lists, one job, and why it does not start."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from django.db.models import QuerySet
from msgspec.structs import replace

from controlplane.core.states import JobState
from controlplane.fleet.selectors import Capacity, capacity
from controlplane.jobs.models import Decision, Flag, Job, Process
from controlplane.protocol.messages import ProcessName
from controlplane.protocol.orders import Role
from controlplane.protocol.spec import Choice, JobSpec, Synchronization, parse_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why a submitted job does not start: what it asks for, what there is, and who is before it."""

    spec: JobSpec
    capacity: Capacity
    ahead: int
    """Jobs that were submitted earlier and do not run either: the oldest starts first."""

    @property
    def sentence(self) -> str:
        """For the operator."""
        place = f"{_count(self.ahead, 'job')} ahead of it in the queue"
        return f"{self._slots()}; {place}"

    def _slots(self) -> str:
        spec, there = self.spec, self.capacity
        where = f" on machines labelled {_labels(spec.labels)}" if spec.labels else ""
        servers = f" and {_count(spec.servers, 'server slot')}" if spec.servers else ""
        needs = f"{_count(spec.workers, 'worker slot')}{servers}{where}"
        if not there.online:
            return f"needs {needs}, and no machine is online: have one join with python -m workers join"
        if not there.matching:
            return f"needs {needs}, which none of those online has ({_count(there.online, 'machine')})"
        if there.workers < spec.workers or there.servers < spec.servers:
            return f"needs {needs}, and these machines offer {there.workers} and {there.servers} in all"
        if there.free_workers < spec.workers or there.free_servers < spec.servers:
            return f"needs {needs}, of which {there.free_workers} and {there.free_servers} are free"
        return (
            f"needs {needs}, which are free: it is about to start"
            if not self.ahead
            else f"needs {needs}, which are free"
        )


def jobs() -> QuerySet[Job]:
    """Every job, the newest first; runs of simulations, too."""
    return Job.objects.select_related("submitted_by").order_by("-id")


def submitted_jobs() -> QuerySet[Job]:
    """Those that were submitted to run on machines: simulated runs are not among them."""
    return jobs().filter(simulation=None)


def job_synchronization(job: Job) -> Synchronization:
    """The four choices that hold now: those of the spec, as far as no change has taken effect."""
    return jobs_synchronization([job])[job.pk]


def jobs_synchronization(jobs: Iterable[Job]) -> dict[int, Synchronization]:
    """The same of many jobs, by id, with one query."""
    chosen = {job.pk: parse_spec(job.spec).synchronization for job in jobs}
    changes = Decision.objects.filter(job_id__in=chosen, kind="change-policies").order_by("incarnation", "sequence")
    for job_id, payload in changes.values_list("job_id", "payload"):
        chosen[job_id] = replace(chosen[job_id], **msgspec.convert(payload["choices"], dict[str, Choice]))
    return chosen


def job_waiting(job: Job) -> Waiting | None:
    """Why ``job`` does not start; None once it has slots or is over."""
    if job.state != JobState.SUBMITTED:
        return None
    spec = parse_spec(job.spec)
    ahead = Job.objects.filter(state=JobState.SUBMITTED, id__lt=job.pk).count()
    return Waiting(spec=spec, capacity=capacity(spec.labels), ahead=ahead)


def job_waiting_reason(job: Job) -> str:
    """The sentence that says why ``job`` does not start; empty once it has slots or is over."""
    waiting = job_waiting(job)
    return waiting.sentence if waiting else ""


def job_processes(job_id: int) -> QuerySet[Process]:
    """Every life of every process of the job."""
    return Process.objects.filter(job_id=job_id).select_related("agent").order_by("-role", "index", "id")


def process_is_of(agent: int, name: ProcessName) -> bool:
    """Whether this life of a process runs or ran on that machine."""
    life = {"job_id": name.job, "role": name.role, "index": name.index, "instance": name.instance}
    return Process.objects.filter(agent_id=agent, **life).exists()


def processes(role: Role) -> QuerySet[Process]:
    """All workers, or all servers, of all jobs that were submitted to run, the newest job first."""
    rows = Process.objects.filter(role=role, job__simulation=None)
    return rows.select_related("agent", "job").order_by("-job_id", "index", "id")


def job_decisions(job_id: int) -> QuerySet[Decision]:
    """What the engine decided, the latest first."""
    return Decision.objects.filter(job_id=job_id).order_by("-incarnation", "-sequence")


def job_flags(job_id: int) -> QuerySet[Flag]:
    """Findings about the job's workers, the latest first."""
    return Flag.objects.filter(job_id=job_id).order_by("-opened_at", "-id")


def job_placement(job_id: int) -> Decision | None:
    """The placement decision that holds now."""
    return job_decisions(job_id).filter(kind="set-placement").first()


def _labels(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
