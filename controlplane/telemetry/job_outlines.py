"""Recorded jobs as input of simulations: whether a job can be simulated, and a scenario without its machines."""

from controlplane.core.states import ProcessState
from controlplane.jobs.models import Job, Process
from controlplane.jobs.stored_specs import UnreadableSpec, stored_spec
from controlplane.jobs.viewing import visible
from controlplane.simulator.errors import ScenarioError, SimulationError
from controlplane.simulator.recorded_run import LEAST, WARM_UP, name_of, outline_of
from controlplane.simulator.scenario import Scenario
from controlplane.simulator.variations import variation_of
from controlplane.telemetry.history import read_columns
from controlplane.telemetry.models import RawEvent


class NotRecorded(SimulationError):
    """There is no such job, or the start of its log is not in the database."""


def recorded_job(job_id: int) -> Job:
    """The job, if the current user may see it.

    Raises:
        NotRecorded: if there is none, its events were deleted, or this release refuses its spec.
    """
    job = visible(Job.objects.filter(pk=job_id)).select_related("simulation").first()
    if job is None:
        last = Job.objects.filter(simulation=None).order_by("-pk").values_list("pk", flat=True).first()
        known = f"the latest is job {last}" if last is not None else "none was ever submitted here"
        raise NotRecorded(f"job {job_id}: not in this database; {known}")
    if job.simulation is not None:
        raise NotRecorded(
            f"job {job_id}: it is a run of simulation {job.simulation.pk}, which anybody can make again: "
            f"python manage.py simulate {job.simulation.scenario} --policies {job.policy} --seed {job.simulation.seed}"
            + variation_of(job.simulation.variation).flags
        )
    try:
        stored_spec(job)
    except UnreadableSpec as error:
        raise NotRecorded(str(error)) from error
    first = RawEvent.objects.filter(job_id=job_id).order_by("incarnation", "id").first()
    if first is None:
        raise NotRecorded(f"job {job_id}: none of its events is in the database: they were pruned, or never copied")
    if first.kind != "job-submitted":
        raise NotRecorded(f"job {job_id}: its log begins with {first.kind} at {first.stream_id}: the start was pruned")
    return job


def job_outline(job_id: int) -> Scenario:
    """The job as a scenario without its machines, whose models need its log: cheap, for choosing what to simulate.

    Raises:
        ScenarioError: for the field ``scenario``, if there is no such job, or this release refuses its spec.
    """
    job = Job.objects.filter(pk=job_id, simulation=None).first()
    if job is None:
        raise _refused(job_id, f"job {job_id} is not in this database")
    try:
        return outline_of(job_id, stored_spec(job), job.iteration)
    except UnreadableSpec as error:
        raise _refused(job_id, str(error)) from None


def recorded_outline(job_id: int) -> Scenario:
    """The same for a job that can be simulated: a finished one with enough recorded iterations.

    Raises:
        ScenarioError: for the field ``scenario``, with what is missing.
    """
    try:
        job = recorded_job(job_id)
    except NotRecorded as error:
        raise _refused(job_id, str(error)) from None
    if not job.is_over:
        raise _refused(job_id, f"job {job_id} is {job.state}; its tab What if simulates what was recorded so far")
    spec, needed = stored_spec(job), WARM_UP + LEAST
    reported = {rank: len(block["iteration"]) for rank, block in read_columns(job_id, ()).items()}
    lost = Process.objects.filter(job=job, role="worker", state=ProcessState.LOST).values_list("index", flat=True)
    few = [rank for rank in range(spec.workers) if reported.get(rank, 0) < needed and rank not in set(lost)]
    if few or not reported:
        rank = few[0] if few else 0
        found = f"of job {job_id}, w{rank} reported {reported.get(rank, 0)} iterations"
        raise _refused(job_id, f"{found}, and {needed} of each worker are needed")
    return outline_of(job_id, spec, job.iteration)


def _refused(job_id: int, why: str) -> ScenarioError:
    return ScenarioError("scenario", name_of(job_id), f"a job that is over and recorded ({why})")
