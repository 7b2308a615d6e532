"""Detects that a service of the control plane started or was down, and records it in every live log.

Deadlines then restart, so that a restart, a suspended machine or an unreachable Redis fails no worker.
"""

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Final

import structlog
from redis.exceptions import RedisError

from controlplane.core.events import ControlPlaneResumed
from controlplane.runtime import liveness, log, names, queue
from controlplane.runtime.job_failures import isolated_step
from controlplane.runtime.redis import Client, shared

BEAT_S: Final = 0.5
SILENCE_S: Final = 2.0
"""An outage of this process longer than this may have hidden heartbeats."""

logger = structlog.get_logger(__name__)


class Pulse:
    """Beats while this process can reach Redis; a gap between two beats is an outage of this process."""

    def __init__(self, role: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.process = f"{role} {socket.gethostname()}:{os.getpid()}"
        self._clock = clock
        self._last: float | None = None
        self._unreported = True

    def beat(self) -> bool:
        """Whether an outage has ended that was not reported yet; the first beat always ends one."""
        now = self._clock()
        self._unreported |= self._last is not None and now - self._last > SILENCE_S
        self._last = now
        return self._unreported

    def mark_reported(self) -> None:
        """Record that every live log has the end of the outage. Until then each beat reports it again."""
        self._unreported = False


def announce(process: str, client: Client) -> int:
    """Append ``ControlPlaneResumed`` to every live log; returns their number."""
    jobs = sorted(int(job) for job in client.smembers(names.LIVE_JOBS))
    for job in jobs:
        with isolated_step("announcing downtime", job, client), suppress(log.LogClosed):
            log.append_event(job, ControlPlaneResumed(who=process), client=client)
    return len(jobs)


def beat_until(stopping: Event, role: str) -> None:
    """Beat until ``stopping`` is set. A beat counts only if Redis answered."""
    pulse = Pulse(role)
    while not stopping.wait(BEAT_S):
        try:
            liveness.say(shared())
            if not shared().exists(names.IDENTITY):
                queue.declare()  # without them no process would recover into the empty Redis
            if pulse.beat():
                logger.info("control plane resumed", process=pulse.process, jobs=announce(pulse.process, shared()))
                pulse.mark_reported()
        except RedisError as error:
            logger.warning("redis out of reach", process=pulse.process, why=str(error))


def start_pulse(stopping: Event, role: str) -> Thread:
    """Start a thread that beats."""
    thread = Thread(target=beat_until, args=(stopping, role), name=f"pulse-{role}", daemon=True)
    thread.start()
    return thread
