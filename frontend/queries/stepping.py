"""The effect of one update on the parameters of a job whose barrier has no common iterations."""

from controlplane.core.barriers import AsyncBarrier, step_sentence
from controlplane.jobs.models import Job
from controlplane.jobs.selectors import job_synchronization
from controlplane.policies.registry import resolve
from controlplane.protocol.spec import parse_spec


def stepping(job: Job) -> str:
    """One sentence; empty if the workers' iterations are common."""
    barrier = resolve("barrier", job_synchronization(job).barrier)
    if not isinstance(barrier, AsyncBarrier):
        return ""
    spec = parse_spec(job.spec)
    alive = job.processes.filter(role="worker", ended_at=None).count()
    return step_sentence(spec, barrier.step_scale, alive or spec.workers)
