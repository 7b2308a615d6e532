"""Reads stored specs. An earlier release may have accepted a spec that this one refuses.

Such a job is listed with the reason. It must not break lists, totals or metrics of other jobs.
"""

from collections.abc import Iterable

from controlplane.jobs.models import Job
from controlplane.protocol import RELEASE
from controlplane.protocol.cleaning import clean_text
from controlplane.protocol.parts import SpecError
from controlplane.protocol.spec import JobSpec, parse_spec


class UnreadableSpec(Exception):
    """A stored spec that this release refuses, with the cure."""


def stored_spec(job: Job) -> JobSpec:
    """The spec of a submitted job.

    Raises:
        UnreadableSpec: if this release refuses it.
    """
    try:
        return parse_spec(job.spec)
    except SpecError as error:
        why = clean_text(str(error), 300)
        raise UnreadableSpec(
            f"Paceline {RELEASE} refuses the stored spec of {job}: {why}. An earlier release accepted it; its log and "
            "model are kept. Submit a corrected spec as a new job, or use the release that it was submitted to"
        ) from error


def stored_specs(jobs: Iterable[Job]) -> tuple[dict[int, JobSpec], dict[int, str]]:
    """The specs by job id, and for jobs with a refused spec the reason by id."""
    specs: dict[int, JobSpec] = {}
    refused: dict[int, str] = {}
    for job in jobs:
        try:
            specs[job.pk] = stored_spec(job)
        except UnreadableSpec as error:
            refused[job.pk] = str(error)
    return specs, refused
