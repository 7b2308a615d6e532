"""Reads the log and decisions of recorded jobs from the database, for replay and what-if."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from django.db.models import Exists, OuterRef, QuerySet
from msgspec.structs import replace

from controlplane.core.events import Entry, JobSubmitted, ServerMessageReceived, WorkerMessageReceived
from controlplane.jobs.models import Decision, Job
from controlplane.jobs.selectors import job_synchronization
from controlplane.jobs.stored_specs import stored_spec
from controlplane.protocol.messages import IterationReport
from controlplane.runtime import log
from controlplane.simulator.recorded_run import Run, as_if_begun, read_run
from controlplane.simulator.replay import Decided
from controlplane.simulator.scenario import Scenario
from controlplane.telemetry.job_outlines import recorded_job
from controlplane.telemetry.models import RawEvent
from controlplane.telemetry.simulations import simulation_played

CHUNK: Final = 2000
"""Rows per fetch."""

MOST_REPORTS: Final = 30_000
"""Most reports for a model; for a larger job they cover fewer seconds."""

HELLOS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """A run of a simulation: the scenario, the policies, and the resulting mean iteration."""

    scenario: Scenario
    policy: str
    iteration_s: float


def simulated_run(job_id: int) -> SimulatedRun | None:
    """The simulation of which the job is a run; None if it is not simulated.

    Raises:
        SimulationError: if this release has no such scenario any more.
    """
    job = Job.objects.filter(pk=job_id, simulation__isnull=False).select_related("simulation").first()
    if job is None or job.simulation is None:
        return None
    lengths = {outcome["policy"]: outcome["iteration_s"] for outcome in job.simulation.outcomes}
    scenario, _ = simulation_played(job.simulation, learned_run)
    return SimulatedRun(scenario=scenario, policy=job.policy, iteration_s=lengths.get(job.policy, 0.0))


def learned_run(job_id: int) -> Run:
    """Learn the job's machines from its whole log.

    Raises:
        NotRecorded: if there is none, or its events are gone.
        TooLittle: if a worker has reported too few iterations.
    """
    recorded_job(job_id)
    return read_run(job_id, recorded_log(job_id))


def recorded_log(job_id: int) -> Iterator[Entry]:
    """Every entry of the job's log, in order."""
    rows = RawEvent.objects.filter(job_id=job_id).order_by("incarnation", "id")
    for stream_id, payload in rows.values_list("stream_id", "payload").iterator(chunk_size=CHUNK):
        yield Entry(id=stream_id, event=log.read_event(stream_id, bytes(payload)))


def recent_log(job_id: int, seconds: int) -> Iterator[Entry]:
    """The job as if it had begun ``seconds`` before its newest report: submitted with the policies that hold now, its
    servers, then what its workers reported since, iterations counted from the first that all of them have.

    It contains nothing from before the last change of policies, and at most ``MOST_REPORTS``.
    """
    job = Job.objects.get(pk=job_id)
    rows = RawEvent.objects.filter(job_id=job_id)
    submitted = rows.order_by("incarnation", "id").first()
    assert submitted is not None, "recorded_job was asked first"
    spec = replace(stored_spec(job), synchronization=job_synchronization(job))
    yield Entry(id=submitted.stream_id, event=JobSubmitted(spec=spec))
    for stream_id, payload in (
        rows.filter(kind="server-hello").order_by("id").values_list("stream_id", "payload")[:HELLOS]
    ):
        event = log.decode_event(bytes(payload))
        if isinstance(event, ServerMessageReceived):
            yield Entry(id=stream_id, event=event)
    reports = list(_recent_reports(rows, seconds, _changed_at(job_id)))
    yield from as_if_begun(reports)


def _recent_reports(
    rows: "QuerySet[RawEvent]", seconds: int, not_before: int
) -> list[tuple[str, WorkerMessageReceived, IterationReport]]:
    """Reports of the last seconds for iterations from ``not_before`` on, oldest first."""
    found: list[tuple[str, WorkerMessageReceived, IterationReport]] = []
    newest_ms: int | None = None
    latest = rows.filter(kind="report").order_by("-id").values_list("stream_id", "payload")[:MOST_REPORTS]
    for stream_id, payload in latest.iterator(chunk_size=CHUNK):
        at_ms = int(stream_id.partition("-")[0])
        newest_ms = newest_ms or at_ms
        if at_ms < newest_ms - seconds * 1000:
            break
        event = log.decode_event(bytes(payload))
        if not isinstance(event, WorkerMessageReceived) or not isinstance(event.message, IterationReport):
            continue
        if event.message.iteration >= not_before:
            found.append((stream_id, event, event.message))
    return found[::-1]


def _changed_at(job_id: int) -> int:
    """The iteration from which on the current policies apply."""
    changes = Decision.objects.filter(job_id=job_id, kind="change-policies").order_by("-incarnation", "-sequence")
    payload = changes.values_list("payload", flat=True).first()
    return int(payload.get("first_iteration", 0)) if payload else 0


def recorded_decisions(job_id: int) -> Iterator[Decided]:
    """Every decision of the job, in order, except those on entries that Redis lost before they were copied."""
    rows = Decision.objects.filter(job_id=job_id).order_by("incarnation", "sequence")
    if rows.filter(incarnation__gt=0).exists():
        entries = RawEvent.objects.filter(job_id=job_id, incarnation__lte=OuterRef("incarnation"))
        rows = rows.filter(Exists(entries.filter(stream_id=OuterRef("cause"))))
    for cause, kind, payload in rows.values_list("cause", "kind", "payload").iterator(chunk_size=CHUNK):
        yield Decided(cause=cause, kind=kind, content=payload)
