"""What becomes of jobs whose log is gone: the Redis that held it forgot it, as one without a disk does when it ends.

A job's row shows states that only its log can have led to, and a log stays in Redis until the row says that the job is
over. So a live row without a log has lost it.
"""

from typing import Final

import structlog
from django.utils import timezone

from controlplane.core.states import JOB_OVER, JobState
from controlplane.jobs.models import Job, Process
from controlplane.jobs.projections import fail_lost_job
from controlplane.runtime import names, ticks
from controlplane.runtime.redis import Client, shared
from controlplane.telemetry.projections import forget_history

LOST: Final = "its log was lost: the Redis that held it is gone"

logger = structlog.get_logger(__name__)


def settle_lost_jobs(client: Client | None = None) -> list[int]:
    """Fail every live job whose log is gone, and have those that had only been submitted begin anew; the failed."""
    client = client or shared()
    failed = []
    for job, state in Job.objects.exclude(state__in=JOB_OVER).order_by("id").values_list("id", "state"):
        if client.exists(names.engine(job)):
            continue
        if state == JobState.SUBMITTED:
            forget_history(job)
        elif fail_lost_job(job, LOST, timezone.now()):
            failed.append(job)
    for job in failed:
        logger.error("job failed", job=job, why=LOST)
        _stop_processes(client, job)
    if failed:
        ticks.publish(client, jobs=dict.fromkeys(failed, JobState.FAILED), fleet=True)
    return failed


def _stop_processes(client: Client, job: int) -> None:
    """Have the job's agents look again at what they are to run: nothing of this job is among it."""
    agents = Process.objects.filter(job_id=job).exclude(agent=None).values_list("agent_id", flat=True).distinct()
    for agent in agents.order_by("agent_id"):
        client.publish(names.agent_moved(agent), "")
