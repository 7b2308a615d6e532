"""Describes a barrier without common iterations: the effect of one update, and where it is sampled."""

from controlplane.core.barriers import AsyncBarrier, SampledByPeers, step_sentence
from controlplane.jobs.models import Job
from controlplane.jobs.selectors import job_synchronization
from controlplane.jobs.stored_specs import stored_spec
from controlplane.policies.registry import resolve


def stepping(job: Job) -> str:
    """One or two sentences; empty if workers share common iterations."""
    barrier = resolve("barrier", job_synchronization(job).barrier)
    if not isinstance(barrier, AsyncBarrier):
        return ""
    spec = stored_spec(job)
    alive = job.processes.filter(role="worker", ended_at=None).count()
    effect = step_sentence(spec, barrier.step_scale, alive or spec.workers)
    if not isinstance(barrier, SampledByPeers):
        return effect
    return f"{effect} Each worker queries its sample directly, without the control plane, before it continues."
