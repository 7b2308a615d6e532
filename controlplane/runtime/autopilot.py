"""Simulates what autopilots ask for with ``PlayAlternatives``, in a low-priority subprocess; answered by an event.

One at a time on the whole control plane, by the task that also simulates for pages. A question may be lost or played
twice: the engine takes one answer, and asks again after a while. Until then the job keeps its policies.
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
from controlplane.telemetry.recorded import recorded_job

Play = Callable[[int, str], AlternativesPlayed]
"""From a job and its question, as ``request_plays`` keeps it, to the answer."""

MOST_REASON: Final = 500

logger = structlog.get_logger(__name__)

_decoder: msgspec.msgpack.Decoder[PlayAlternatives] = msgspec.msgpack.Decoder(PlayAlternatives)
_answers: msgspec.json.Decoder[AlternativesPlayed] = msgspec.json.Decoder(AlternativesPlayed)


def request_plays(job: int, commands: Sequence[AnyCommand]) -> None:
    """Store the simulations that were just asked for; call it once they are committed.

    A newer question replaces the job's older one, and keeps its place in the queue. Uses the process's shared
    connections, since the caller may still read a reply from its own. Without Redis the question is lost.
    """
    for command in commands:
        if isinstance(command, PlayAlternatives):
            with suppress(RedisError), shared().pipeline(transaction=True) as pipe:
                pipe.hset(names.PLAYS_ASKED, str(job), b64encode(msgspec.msgpack.encode(command)).decode())
                pipe.zadd(names.PLAYS_SINCE, {str(job): time.time()}, nx=True)
                pipe.execute()


def play_one(client: Client, play: Play) -> int | None:
    """Answer the question that has waited longest, if there is any: its job, or None."""
    asked = {int(_text(key)): _text(question) for key, question in client.hgetall(names.PLAYS_ASKED).items()}
    if not asked:
        return None
    since = {job: client.zscore(names.PLAYS_SINCE, str(job)) or 0.0 for job in asked}
    job = min(asked, key=lambda each: (since[each], each))
    client.hdel(names.PLAYS_ASKED, str(job))
    client.zrem(names.PLAYS_SINCE, str(job))
    try:
        log.append_event(job, play(job, asked[job]))
    except log.LogClosed:
        logger.info("job was over before its alternatives were simulated", job=job)
    except log.LogMissing:
        logger.info("an autopilot's answer waits until the log is recovered", job=job)
    return job


def in_a_process(stopping: Event) -> Play:
    """Simulates with ``manage.py whatif --asked`` in a subprocess; it is ended when it takes too long."""

    def play(job: int, question: str) -> AlternativesPlayed:
        try:
            return _answers.decode(run_in_subprocess(["whatif", str(job), "--asked", question], stopping, MOST_S))
        except (BrokenOff, Failed) as error:
            look = _decoder.decode(b64decode(question)).look
            return AlternativesPlayed(look=look, reason=str(error)[:MOST_REASON])

    return play


def answer(job_id: int, question: str) -> str:
    """The answer as JSON, from the job's last minutes as they are in the database.

    Raises:
        SimulationError: if nothing is recorded of the job.
    """
    recorded_job(job_id)
    command = _decoder.decode(b64decode(question))
    entries = recent_log(job_id, RECENT_S)  # counted from where the present policies took effect
    spec = stored_spec(Job.objects.get(pk=job_id))
    return json.dumps(msgspec.to_builtins(play_alternatives(job_id, spec, entries, replace(command, since=0))))


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
