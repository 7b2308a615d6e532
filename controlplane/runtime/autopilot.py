"""Runs simulations that autopilots request with ``PlayAlternatives``, in a low-priority subprocess. An event replies.

One runs at a time on the whole control plane, in the task that also simulates for pages. A request may be lost or run
twice: the engine accepts one answer, and repeats the request later. Until then the job keeps its policies.
"""

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace
from redis.exceptions import RedisError

from controlplane.core.commands import AnyCommand, PlayAlternatives
from controlplane.core.events import AlternativesPlayed
from controlplane.jobs.models import Job
from controlplane.jobs.stored_specs import stored_spec
from controlplane.runtime import log, names
from controlplane.runtime.forecasts import MOST_S, RECENT_S
from controlplane.runtime.recorded_jobs import recent_log
from controlplane.runtime.redis import Client, shared
from controlplane.runtime.subprocesses import BrokenOff, Failed, run_in_subprocess
from controlplane.simulator.autopilot import play_alternatives
from controlplane.telemetry.job_outlines import recorded_job

Play = Callable[[int, str], AlternativesPlayed]
"""Maps a job and its request, as stored by ``request_plays``, to the answer."""

MOST_REASON: Final = 500

logger = structlog.get_logger(__name__)

_decoder: msgspec.msgpack.Decoder[PlayAlternatives] = msgspec.msgpack.Decoder(PlayAlternatives)
_answers: msgspec.json.Decoder[AlternativesPlayed] = msgspec.json.Decoder(AlternativesPlayed)


def request_plays(job: int, commands: Sequence[AnyCommand]) -> None:
    """Store the requested simulations; call it after the commit of the commands.

    A newer request replaces the job's older one, and keeps its place in the queue. Uses the process's shared
    connections, since the caller may still read a reply from its own. Without Redis the request is lost.
    """
    for command in commands:
        if isinstance(command, PlayAlternatives):
            with suppress(RedisError), shared().pipeline(transaction=True) as pipe:
                pipe.hset(names.PLAYS_REQUESTED, str(job), b64encode(msgspec.msgpack.encode(command)).decode())
                pipe.zadd(names.PLAYS_REQUESTED_AT, {str(job): time.time()}, nx=True)
                pipe.execute()


def play_one(client: Client, play: Play) -> int | None:
    """Run the oldest request; returns its job, or None if there is no request."""
    requested = {int(_text(key)): _text(request) for key, request in client.hgetall(names.PLAYS_REQUESTED).items()}
    if not requested:
        return None
    since = {job: client.zscore(names.PLAYS_REQUESTED_AT, str(job)) or 0.0 for job in requested}
    job = min(requested, key=lambda each: (since[each], each))
    client.hdel(names.PLAYS_REQUESTED, str(job))
    client.zrem(names.PLAYS_REQUESTED_AT, str(job))
    try:
        log.append_event(job, play(job, requested[job]))
    except log.LogClosed:
        logger.info("job was over before its alternatives were simulated", job=job)
    except log.LogMissing:
        logger.info("an autopilot's result is delayed until the log is recovered", job=job)
    return job


def in_a_process(stopping: Event) -> Play:
    """Simulates with ``manage.py whatif --request`` in a subprocess, which is ended if it takes too long."""

    def play(job: int, request: str) -> AlternativesPlayed:
        try:
            return _answers.decode(run_in_subprocess(["whatif", str(job), "--request", request], stopping, MOST_S))
        except (BrokenOff, Failed) as error:
            look = _decoder.decode(b64decode(request)).look
            return AlternativesPlayed(look=look, reason=str(error)[:MOST_REASON])

    return play


def answer(job_id: int, request: str) -> str:
    """The answer as JSON, based on the job's last minutes in the database.

    Raises:
        SimulationError: if nothing is recorded about the job.
    """
    recorded_job(job_id)
    command = _decoder.decode(b64decode(request))
    entries = recent_log(job_id, RECENT_S)  # counted from where the current policies took effect
    spec = stored_spec(Job.objects.get(pk=job_id))
    return json.dumps(msgspec.to_builtins(play_alternatives(job_id, spec, entries, replace(command, since=0))))


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
