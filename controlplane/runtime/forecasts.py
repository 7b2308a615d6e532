"""Simulates alternatives for a job while a user views them, from its last minutes, in a separate process.

Limits: one simulation at a time, each job once per minute, over ``RECENT_S`` of its log, in a low-priority process that
ends after ``MOST_S``. Decisions do not depend on it.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from threading import Event
from typing import Any, Final

from django.utils import timezone
from redis.exceptions import RedisError

from controlplane.jobs.models import Job
from controlplane.runtime import names
from controlplane.runtime.models import Forecast
from controlplane.runtime.redis import Client, shared
from controlplane.runtime.subprocesses import BrokenOff, Failed, run_in_subprocess

RECENT_S: Final = 180
"""The last seconds of the log, from which the model is fitted and the job simulated."""

EVERY_S: Final = 60.0
WANTED_S: Final = 60.0
"""A job that nobody viewed for this long is not simulated."""

MOST_S: Final = 120.0
SEEDS: Final = 3

Play = Callable[[int], dict[str, Any]]
"""Maps a job to the document of ``manage.py whatif --json``; raises ``CannotPlay``."""


class CannotPlay(RuntimeError):
    """The job's alternatives cannot be predicted; the message is for the operator."""


def want(job: int, client: Client | None = None) -> None:
    """Request simulations of this job because a page shows its alternatives; without Redis none are made."""
    with suppress(RedisError, RuntimeError):
        (client or shared()).zadd(names.FORECASTS_WANTED, {str(job): time.time()})


def due(client: Client) -> list[int]:
    """Viewed jobs with an old forecast, the one that has waited longest first."""
    now = time.time()
    client.zremrangebyscore(names.FORECASTS_WANTED, "-inf", now - WANTED_S)
    wanted = [int(job) for job in client.execute_command("ZRANGE", names.FORECASTS_WANTED, 0, -1)]
    jobs = Job.objects.in_bulk(wanted)
    made = {row.job_id: row for row in Forecast.objects.filter(job__in=jobs).only("job_id", "made_at", "reason")}
    old = timezone.now() - timedelta(seconds=EVERY_S)
    waiting = [
        (made[pk].made_at.timestamp() if pk in made else 0.0, pk)
        for pk, job in jobs.items()
        if job.iteration and (pk not in made or (made[pk].made_at < old and not _is_final(job, made[pk])))
    ]
    return [pk for _, pk in sorted(waiting)]


def make(job: int, play: Play) -> Forecast:
    """Simulate one job, and store the result or the reason of the failure."""
    began = time.monotonic()
    document: dict[str, Any] | None = None
    reason = ""
    try:
        document = play(job)
    except CannotPlay as error:
        reason = str(error)
    fields = {"answer": document, "reason": reason, "took_s": time.monotonic() - began, "made_at": timezone.now()}
    forecast, _ = Forecast.objects.update_or_create(job_id=job, defaults=fields)
    return forecast


def in_a_process(stopping: Event) -> Play:
    """Simulates with ``manage.py whatif`` in a subprocess, which is ended if it takes too long."""

    def play(job: int) -> dict[str, Any]:
        command = ["whatif", str(job), "--json", "--last", str(RECENT_S), "--seeds", str(SEEDS)]
        try:
            found: dict[str, Any] = json.loads(run_in_subprocess(command, stopping, MOST_S))
        except (BrokenOff, Failed) as error:
            raise CannotPlay(str(error)) from None
        return found

    return play


def _is_final(job: Job, made: Forecast) -> bool:
    """Whether it was simulated successfully after the job's end; a failure, such as a time-out, is retried."""
    return job.finished_at is not None and made.made_at > job.finished_at and not made.reason
