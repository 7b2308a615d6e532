"""Celery tasks of the live driver. Every task may run twice, and may be killed at any line."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Event, Semaphore, local
from typing import Any, Final

import structlog
from celery import shared_task
from celery.signals import worker_init, worker_ready, worker_shutting_down
from django.db import DatabaseError
from django.utils import timezone

from controlplane.fleet.selectors import slots_now
from controlplane.jobs.shares import usage_add
from controlplane.people import audit_chain, syslog
from controlplane.protocol.orders import Role
from controlplane.runtime import (
    alerting,
    autopilot,
    coordinator,
    credential_renewal,
    draining,
    forecasts,
    freshness,
    health,
    liveness,
    machine_tests,
    maintenance,
    names,
    pruning,
    queue,
    reaper,
    redis_identity,
    scaling,
    scheduler,
    ticks,
    training,
)
from controlplane.runtime.downtime import start_pulse
from controlplane.runtime.embedded.gate import await_gate
from controlplane.runtime.engines import Engines
from controlplane.runtime.garbage import collect_seldom
from controlplane.runtime.ingest import run_ingest
from controlplane.runtime.job_failures import isolated_step
from controlplane.runtime.places import Load, Places
from controlplane.runtime.redis import Client, connect, refresh, shared
from controlplane.runtime.scripts import RENEW, RESCUE, SEIZE
from controlplane.runtime.subprocesses import BrokenOff, run_in_subprocess
from controlplane.telemetry.simulations import simulations_rescue

SIMULATE: Final = "controlplane.runtime.tasks.run_simulations"

logger = structlog.get_logger(__name__)

stopping: Final = Event()
"""Set when this worker shuts down: every waiting coordinator stops immediately."""

FREE_THREADS: Final = 2
"""Number of decision threads that stay free, so that a job with new entries finds one immediately."""

ALERTS_HELD_MS: Final = 60_000
AUDIT_HELD_MS: Final = 30_000
DELIVERY_HELD_MS: Final = 120_000
"""Longer than any evaluation or batch of deliveries."""

MOST_OF_SIMULATIONS_S: Final = 3_600.0
"""A process that runs simulations is replaced after this long, in case it hangs. The simulation that it was
running continues in the next one."""

_places: Final = Places(0, Load(lambda: liveness.has_others(shared())))
_simulating: Final = Semaphore(1)
_engines: Final = Engines.of_this_process()
_thread: Final = local()


@shared_task(name=queue.COORDINATE)
def coordinate(job: int) -> None:
    """Process the unread entries of the job's log."""
    client = _own_client()
    coordinator.coordinate(
        job,
        coordinator.Surroundings(
            client=client,
            engines=_engines,
            queue_is_empty=lambda: queue.is_empty(client),
            enqueue=queue.enqueue,
            stopping=stopping,
            places=_places,
        ),
    )


@shared_task(name="controlplane.runtime.tasks.ingest")
def ingest() -> None:
    """Copy the streams to the database, if no other process does; runs until this worker stops."""
    with closing(connect()) as client, _the_only_one(client, names.INGEST_LEASE) as renew:
        if renew is not None:
            freshness.note_copier(client, liveness.shown(liveness.where()))
            run_ingest(client, stopping, renew)


@shared_task(name=training.TRAIN)
def train_predictor(job: int, request: str) -> None:
    """Fit a predictor to its job's measurements."""
    training.fit(job, request)


@shared_task(name=SIMULATE)
def run_simulations() -> None:
    """Run a simulation requested over REST in a subprocess; one at a time per process that takes tasks."""
    if _simulating.acquire(blocking=False):
        try:
            run_in_subprocess(["simulate", "--queued"], stopping, MOST_OF_SIMULATIONS_S)
        except BrokenOff:
            logger.info("simulations wait for the next process that runs them")
        finally:
            _simulating.release()


@shared_task(name="controlplane.runtime.tasks.rescue_simulations")
def rescue_simulations() -> None:
    """Start simulations that are queued or that lost their process."""
    if simulations_rescue(timezone.now()):
        run_simulations.delay()


@shared_task(name=scaling.RESERVE)
def reserve_slot(job: int, role: Role, index: int) -> None:
    """Reserve a slot for one more process of a running job."""
    scaling.reserve(job, role, index)


@shared_task(name="controlplane.runtime.tasks.schedule")
def schedule() -> None:
    """Start missing logs, apply maintenance windows, end lost machine tests, drain machines, and assign slots to queued
    jobs.
    """
    scheduler.begin_logs()
    maintenance.keep_windows(timezone.now())
    machine_tests.end_overdue(timezone.now())
    draining.drain_machines()
    scheduler.replace_slots()
    scheduler.schedule_jobs()


@shared_task(name="controlplane.runtime.tasks.rescue")
def rescue() -> None:
    """Queue jobs that a crash interrupted, and jobs that may have lost a part of their log.

    A job with an engine in memory does not need the database, and does not wait for it.
    """
    try:
        redis_identity.settle()
    except DatabaseError:
        _queue_stranded()
        raise
    _queue_stranded()


@shared_task(name="controlplane.runtime.tasks.tend")
def tend() -> None:
    """Each second: queue stranded jobs, copy the streams, start jobs that fit, and end processes of lost agents.

    One task, since a task costs 3 ms of CPU until it runs. A step that fails does not stop the others.

    Raises:
        ExceptionGroup: the errors of the steps that failed.
    """
    failures = []
    for step in (rescue, _start_ingest, reaper.reap_offline_agents, schedule):
        try:
            step()
        except Exception as error:
            failures.append(error)
    if failures:
        raise ExceptionGroup("steps of this second failed", failures)


def _start_ingest() -> None:
    """Unless a process copies the streams: it holds the lease, and lives."""
    if not liveness.is_held(shared(), names.INGEST_LEASE):
        ingest.apply_async(expires=2.0)


@shared_task(name="controlplane.runtime.tasks.sample_presence")
def sample_presence() -> None:
    """Copy the load of agents to rows, remove absent agents, renew credentials, and sample the control
    plane's own health.
    """
    reaper.sample_presence()
    usage_add(slots_now())
    reaper.remove_absent_agents()
    credential_renewal.renew_credentials()
    health.sample()


@shared_task(name="controlplane.runtime.tasks.forecast")
def forecast() -> None:
    """Simulate an autopilot's request, and a job's alternatives if a page shows them.

    One job at a time on the whole control plane.
    """
    client = _own_client()
    with _the_only_one(client, names.FORECAST_LEASE, held_ms=int(2 * forecasts.MOST_S * 1000)) as renew:
        if renew is not None and (job := autopilot.play_one(client, autopilot.in_a_process(stopping))) is not None:
            logger.info("simulated the alternatives of an autopilot", job=job)
        if renew is not None and renew() and (waiting := forecasts.due(client)):
            made = forecasts.make(waiting[0], forecasts.in_a_process(stopping))
            ticks.publish(client, jobs={made.job_id: made.job.state})


@shared_task(name="controlplane.runtime.tasks.evaluate_alerts")
def evaluate_alerts() -> None:
    """Evaluate the alert rules, and request delivery of notifications."""
    client = _own_client()
    with _the_only_one(client, names.ALERTS_LEASE, held_ms=ALERTS_HELD_MS) as renew:
        if renew is not None:
            alerting.evaluate(client)
    if alerting.is_delivery_due():
        deliver_alerts.delay()


@shared_task(name=alerting.DELIVER)
def deliver_alerts() -> None:
    """Deliver alert messages until none is due."""
    client = _own_client()
    with _the_only_one(client, names.DELIVERY_LEASE, held_ms=DELIVERY_HELD_MS) as renew:
        while renew is not None and alerting.is_delivery_due() and not stopping.is_set() and renew():
            alerting.deliver(client)


@shared_task(name="controlplane.runtime.tasks.seal_audit")
def seal_audit() -> None:
    """Seal new entries of the audit trail, and copy them to the syslog server."""
    client = _own_client()
    with _the_only_one(client, names.AUDIT_LEASE, held_ms=AUDIT_HELD_MS) as renew:
        if renew is not None:
            audit_chain.seal_pending()
            syslog.copy_pending()


@shared_task(name="controlplane.runtime.tasks.prune")
def prune() -> None:
    """Delete old data, by the default limits."""
    pruning.prune(pruning.Limits(now=timezone.now()))


@worker_init.connect
def refuse_a_foreign_redis(**_: Any) -> None:
    """Before the first task: wait for the tables, and refuse a Redis of another control plane."""
    await_gate()
    try:
        redis_identity.recognise(shared())
    except redis_identity.ForeignRedis as error:
        raise SystemExit(str(error)) from None


@worker_shutting_down.connect
def end_lingers(**_: Any) -> None:
    """End every loop of this process."""
    stopping.set()


@worker_ready.connect
def announce_process(sender: Any, **_: Any) -> None:
    """Send this process's heartbeats, so that its leases are released early if it dies.

    In a decision process: log
    in every live job that decisions resume, now and after every outage.
    """
    collect_seldom()
    if queue.DECISIONS in sender.app.amqp.queues.consume_from:
        _places.most = max(1, sender.pool.num_processes - FREE_THREADS)
        start_pulse(stopping, "coordinator")  # first: it keeps running if Redis fails right now
        liveness.begin(shared())
        _queue_stranded()
    else:
        liveness.begin(shared(), names.writer)
        liveness.start_heartbeat(stopping)


def _queue_stranded() -> None:
    for job in RESCUE.run(shared(), [names.LIVE_JOBS, queue.DECISIONS], names.QUEUED_MS, names.FETCHED_MS):
        with isolated_step("queueing", int(job)):
            queue.enqueue(int(job))


def _own_client() -> Client:
    """The Redis client of the calling thread."""
    client: Client | None = getattr(_thread, "client", None)
    if client is None:
        client = _thread.client = connect()
    refresh(client)
    return client


@contextmanager
def _the_only_one(client: Client, lease: str, held_ms: int = names.HELD_MS) -> Iterator[Callable[[], bool] | None]:
    """Hold a lease that one process at a time may have; yields a function that renews it, or None if another has it.

    The function may be called often: it sends a request at most once a second.
    """
    mine = f"{liveness.me()}:{secrets.token_hex(16)}"
    if not SEIZE.run(client, [lease], mine, held_ms):
        yield None
        return
    renewed = time.monotonic()

    def renew() -> bool:
        nonlocal renewed
        if time.monotonic() - renewed < names.RENEW_S:
            return True
        renewed = time.monotonic()
        return bool(RENEW.run(client, [lease], mine, held_ms))

    try:
        yield renew
    finally:
        if client.get(lease) == mine.encode():
            client.delete(lease)
