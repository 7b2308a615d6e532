"""Detects a Redis that was restarted, lost its data or was replaced, and starts the recovery of every live job.

A Redis has an *identity*, which the database stores, and a run id. An empty Redis is taken over. One that belongs to
another database is refused and not modified. One that this database used earlier is stale, and its jobs are removed.
Agents receive no orders until every live job is recovered; running processes continue.
"""

from secrets import token_hex
from typing import Final

import structlog

from controlplane.core.states import JOB_OVER, JobState
from controlplane.fleet.models import Agent, Reservation
from controlplane.fleet.reservations import release_slots
from controlplane.jobs.models import Job
from controlplane.runtime import names, queue
from controlplane.runtime.job_failures import isolated_step
from controlplane.runtime.models import KnownRedis
from controlplane.runtime.redis import Client, redis_run_id, shared
from controlplane.runtime.scripts import READY, UNRECOVERED

QUEUED_NOW: Final = 2
MOST_AT_ONCE: Final = 500
TAKING_OVER_MS: Final = 5_000
"""How long one process may take to claim a Redis before another tries."""

logger = structlog.get_logger(__name__)


class ForeignRedis(RuntimeError):
    """The Redis belongs to the control plane of another database."""


def settle(client: Client | None = None) -> bool:
    """Whether every live job's log is complete in this Redis; jobs with incomplete logs are queued for recovery.

    Raises:
        ForeignRedis: if it belongs to another control plane.
    """
    client = client or shared()
    if not recognise(client):
        return False
    if READY.run(client, [names.RECOVERED], redis_run_id(), "ask"):
        return True
    if _recover(client):
        return False
    _free_slots(client)
    READY.run(client, [names.RECOVERED], redis_run_id(), "mark")
    for agent in Agent.objects.order_by("pk").values_list("pk", flat=True):
        client.publish(names.agent_moved(agent), "")
    return True


def recognise(client: Client) -> bool:
    """Check that this Redis is the one that the database knows, or claim it; False while another process does.

    Raises:
        ForeignRedis: if it belongs to another control plane.
    """
    identity = own_identity(client)
    present = KnownRedis.objects.order_by("pk").last()
    if identity and present is not None and identity == present.identity:
        return True
    if not client.set(names.TAKING_OVER, 1, nx=True, px=TAKING_OVER_MS):
        return False
    if own_identity(client) != identity:  # another process claimed it between the two checks
        client.delete(names.TAKING_OVER)
        return False
    if identity:
        _forget_jobs(client)
    _take_over(client, known=present is not None)
    return True


def own_identity(client: Client) -> str:
    """The identity of this Redis, which the database must know; empty if it was not claimed yet.

    Raises:
        ForeignRedis: if it belongs to another control plane.
    """
    found = client.execute_command("GET", names.IDENTITY)
    identity = found.decode() if found else ""
    if identity and not KnownRedis.objects.filter(identity=identity).exists():
        raise ForeignRedis(
            f"The Redis at REDIS_URL belongs to another database (its identity is {identity}): "
            "name an empty one, use another database number, or flush it if it is no longer needed"
        )
    return identity


def _take_over(client: Client, *, known: bool) -> None:
    """Claim this Redis. The row is written first: an identity without a row would count as another database's."""
    identity = token_hex(16)
    KnownRedis.objects.create(identity=identity)
    client.set(names.IDENTITY, identity)
    client.delete(names.TAKING_OVER)
    (logger.warning if known else logger.info)("a new Redis was taken over", identity=identity)


def _forget_jobs(client: Client) -> None:
    """Remove the jobs from an earlier Redis of this database, since they are out of date."""
    logger.warning("an earlier Redis came back; its jobs are out of date")
    for pattern in ("job:*", "agent:*:processes", "agent:*:started", names.LIVE_JOBS, names.RECOVERED):
        for key in client.scan_iter(match=pattern, count=1000):
            client.delete(key)


def _recover(client: Client) -> bool:
    """Queue the jobs with incomplete logs; returns whether there are any."""
    live = (
        Job.objects.filter(simulation=None)
        .exclude(state__in=JOB_OVER)
        .exclude(state=JobState.SUBMITTED, cursors=None)
        .order_by("id")
    )
    jobs = list(live.values_list("pk", flat=True).distinct())
    unsettled = False
    for start in range(0, len(jobs), MOST_AT_ONCE):
        some = jobs[start : start + MOST_AT_ONCE]
        keys = [key for job in some for key in (names.state(job), names.engine(job))]
        found = UNRECOVERED.run(client, keys, names.QUEUED_MS, redis_run_id())
        for job, state in zip(some, found, strict=True):
            unsettled |= state != 0
            with isolated_step("recovering", job, client):
                if state == QUEUED_NOW:
                    queue.enqueue(job)
    return unsettled


def _free_slots(client: Client) -> None:
    """Release slots of finished jobs whose log was lost before it released them."""
    over = Job.objects.filter(state__in=JOB_OVER, pk__in=Reservation.objects.values("job_id"))
    for job in over.order_by("id").values_list("pk", flat=True):
        with isolated_step("giving slots back", job, client):
            if not client.sismember(names.LIVE_JOBS, str(job)):
                release_slots(job)
