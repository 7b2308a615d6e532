"""Turns a parsed document into a valid spec: checks shapes, ranges, and that every name exists.

It also checks that parameters of policies and checkpoints fit the size of the job. The engine would accept larger ones,
with the effect of the largest value that has one, so the page would not show the policy that is in effect.
"""

from typing import Final

from controlplane.core.combinations import Refusal, misfit
from controlplane.jobs.documents import check_plain
from controlplane.policies import registry
from controlplane.policies.autopilot import alternatives
from controlplane.protocol.catalogue import check_training
from controlplane.protocol.spec import Choice, JobSpec, SpecError, parse_spec

EXPLICIT: Final = ("sample", "staleness", "step", "fine_step", "pieces")
"""Parameters whose defaults are accepted at any size; ``backups`` has none that fits a job of two workers."""


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
    found = registry.refusal(spec) or misfit(spec, barrier) or _too_large(spec)
    if found is not None:
        raise SpecError(*found)
    alternatives.check(spec)
    _check_alternatives(spec)
    return spec


def _check_alternatives(spec: JobSpec) -> None:
    """Check the policies that the job's autopilot may choose in the same way."""
    if spec.autopilot is None:
        return
    for field, question, choices in (
        ("barriers", "barrier", spec.autopilot.barriers),
        ("batching", "batching", spec.autopilot.batching),
    ):
        for at, choice in enumerate(choices):
            if (refusal := _too_large_for(spec, question, choice)) is not None:
                name, found, expected = refusal
                raise SpecError(f"autopilot.{field}[{at}].{name.rpartition('.')[2]}", found, expected)


def _too_large(spec: JobSpec) -> Refusal | None:
    """The first parameter that is too large for the job; None if there is none."""
    own = spec.synchronization
    of_policies = _too_large_for(spec, "barrier", own.barrier) or _too_large_for(spec, "batching", own.batching)
    return of_policies or _too_rare(spec)


def _too_rare(spec: JobSpec) -> Refusal | None:
    """The checkpoint interval of a job that would end before its first one."""
    checkpoint, iterations = spec.checkpoint, spec.stop.iterations
    if checkpoint is None or iterations is None or checkpoint.every <= iterations:
        return None
    return "checkpoint.every", checkpoint.every, f"at most {iterations}, or the job ends before it saves a checkpoint"


def _too_large_for(spec: JobSpec, question: str, choice: Choice) -> Refusal | None:
    """The first parameter of this policy that is too large for the job."""
    entry = next(each for each in registry.REGISTRATIONS if (each.question, each.name) == (question, choice.name))
    defaults = entry.parameters()
    for name, (most, cure) in _bounds(spec, choice.name).items():
        if name not in entry.parameters.__struct_fields__:
            continue
        default = getattr(defaults, name)
        found = choice.parameters.get(name, default)
        if found > (max(most, default) if name in EXPLICIT else most):
            return f"synchronization.{question}.{name}", found, f"at most {most} {cure}"
    return None


def _bounds(spec: JobSpec, policy: str) -> dict[str, tuple[int, str]]:
    """The largest value of each parameter that has an effect, and what to do instead."""
    others, iterations, share = spec.workers - 1, spec.stop.iterations, spec.usual_share
    of = f"for {spec.workers} worker{'' if spec.workers == 1 else 's'}"
    whole = "ssp" if policy == "pssp" else "bsp"
    found = {
        "backups": (others, f"{of}: an iteration needs the update of at least one; or barrier bsp, which has none"),
        "sample": (others, f"{of}, of which each can sample the others; to wait for all of them use {whole}"),
        "step": (share, f"samples of a worker's share of {share}: more than all cannot be moved"),
        "fine_step": (share, f"samples of a worker's share of {share}: more than all cannot be moved"),
        "pieces": (share, f"pieces of a share of {share} samples: a piece has at least one"),
    }
    if iterations is not None:
        most, cure = max(0, iterations - 1), f"for {iterations} iterations, or no worker ever waits; for that use asp"
        found["staleness"] = (most, cure)
    return found
