"""Turns a parsed document into a valid spec: checks shapes, ranges, and that every name exists."""

from controlplane.core.combinations import misfit
from controlplane.jobs.documents import check_plain
from controlplane.jobs.proportions import disproportion, of_choice
from controlplane.policies import registry
from controlplane.policies.autopilot import alternatives
from controlplane.protocol.catalogue import check_training
from controlplane.protocol.spec import JobSpec, SpecError, parse_spec


def validated_spec(document: object) -> JobSpec:
    """The spec of a document.

    Raises:
        SpecError: naming the first field that cannot be accepted, its value and what is allowed.
    """
    check_plain(document)
    spec = parse_spec(document)
    if not spec.attached:  # the script defines what it trains
        check_training(spec)
    registry.check(spec.synchronization)
    barrier = registry.resolve("barrier", spec.synchronization.barrier)
    found = registry.refusal(spec) or misfit(spec, barrier) or disproportion(spec)
    if found is not None:
        raise SpecError(*found)
    alternatives.check(spec)
    _check_alternatives(spec)
    return spec


def _check_alternatives(spec: JobSpec) -> None:
    """As the job's own policies, those that its autopilot may choose."""
    if spec.autopilot is None:
        return
    for field, question, choices in (
        ("barriers", "barrier", spec.autopilot.barriers),
        ("batching", "batching", spec.autopilot.batching),
    ):
        for at, choice in enumerate(choices):
            if (refusal := of_choice(spec, question, choice)) is not None:
                name, found, expected = refusal
                raise SpecError(f"autopilot.{field}[{at}].{name.rpartition('.')[2]}", found, expected)
