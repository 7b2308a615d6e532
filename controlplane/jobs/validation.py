"""Turns a parsed document into a valid spec: checks shapes, ranges, and that every name exists."""

from controlplane.core.combinations import misfit
from controlplane.jobs.documents import check_plain
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
    found = registry.refusal(spec) or misfit(spec, registry.resolve("barrier", spec.synchronization.barrier))
    if found is not None:
        raise SpecError(*found)
    alternatives.check(spec)
    return spec
