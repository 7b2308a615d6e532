"""Handles jobs with an engine that cannot be restored: jobs that have ended, and jobs that cannot be rebuilt."""

from typing import Final

import structlog
from django.utils import timezone

from controlplane.core.events import StopRequested
from controlplane.core.states import JobState
from controlplane.fleet.reservations import release_slots
from controlplane.jobs.models import Process
from controlplane.jobs.projections import end_lost_job, pause_lost_job
from controlplane.runtime import log, ticks
from controlplane.runtime.lease import Lease
from controlplane.runtime.redis import Client

TRY_AGAIN_S: Final = 30.0
"""Delay before the next attempt to rebuild a job: another release may be able to."""

MOST_LOOKED_AT: Final = 10_000

logger = structlog.get_logger(__name__)


def end_unrecoverable(client: Client, lease: Lease) -> None:
    """Keep the end state of a job that ended before Redis lost the end of its log, and stop its processes."""
    processes = list(Process.objects.filter(job_id=lease.job).values_list("agent_id", "role", "index"))
    agents = sorted({agent for agent, _, _ in processes if agent is not None})
    lease.end_lost(agents, sorted({f"{lease.job}:{role}:{index}" for _, role, index in processes}))
    release_slots(lease.job)
    logger.warning("job was already over", job=lease.job)


def pause(client: Client, lease: Lease, why: str) -> None:
    """Pause the job, with the reason; if a user asked to end it meanwhile, end it."""
    unread = log.read_entries(client, lease.job, after=lease.cursor or "0-0", count=MOST_LOOKED_AT, block_s=0)
    stops = [entry.event.sentence for entry in unread if isinstance(entry.event, StopRequested)]
    if stops:
        end_lost_job(lease.job, JobState.CANCELLED, f"{stops[0]}; {why}", timezone.now())
        state = JobState.CANCELLED
        end_unrecoverable(client, lease)
    else:
        pause_lost_job(lease.job, why, timezone.now())
        state = JobState.PAUSED
        lease.rest(TRY_AGAIN_S)
    logger.error("job cannot continue", job=lease.job, state=state, why=why)
    ticks.publish(client, jobs={lease.job: state}, fleet=True)
