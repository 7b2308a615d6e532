"""What one update does to the parameters where it is applied by itself, without those of an iteration in common.

What follows a synchronous run at equal samples depends on the optimiser. A step of plain SGD is as long as the
gradient, so n steps of an n-th are one. One that divides the gradient by its own size (Adam and its kin) makes steps of
one length whatever the batch, and one with momentum forgets by the step: with these, n updates are added up and make
one step along their mean.
"""

from typing import Literal, NamedTuple

from controlplane.core.gates import Gate, StepScale
from controlplane.protocol.catalogue import WORKLOADS
from controlplane.protocol.optimizers import clips_by_norm, is_proportional, knows_step, settings
from controlplane.protocol.spec import JobSpec


class Stepping(NamedTuple):
    """How updates are applied: each as ``scale`` of a step, or ``gather`` of them as one along their mean."""

    scale: float
    gather: int


def rule_of(spec: JobSpec, asked: StepScale) -> Literal["mean", "average", "paper"] | float:
    """What holds for this job."""
    if asked is not None and asked != "auto":
        return asked
    workload = WORKLOADS.get(spec.workload.name)
    adds_up = workload is not None and workload.sums
    return "mean" if adds_up or is_proportional(spec.applied) else "average"


def stepping_of(spec: JobSpec, asked: StepScale, workers: int, *, is_ending: bool = False) -> Stepping:
    """The same as servers have it; near the end, when no more may come, nothing is added up any more."""
    rule, workers = rule_of(spec, asked), max(1, workers)
    if rule == "average" and not is_ending:
        return Stepping(scale=1.0, gather=workers)
    if rule in ("mean", "average"):
        return Stepping(scale=1.0 / workers, gather=1)
    return Stepping(scale=1.0 if rule == "paper" else float(rule), gather=1)


def told(spec: JobSpec, asked: StepScale, workers: int) -> str:
    """One plain sentence on it."""
    rule, names = rule_of(spec, asked), ", ".join(dict.fromkeys(each.name for _, each in settings(spec.applied)))
    if rule == "mean":
        return f"Each update is applied as it arrives, as 1/{workers} of a step: {workers} of them are one step."
    if rule == "average":
        return (
            f"Servers add up {workers} updates and make one step of {names} along their mean: "
            f"{workers} steps of 1/{workers} would not be one."
        )
    if rule == "paper":
        return f"Each update is applied as it arrives, as a whole step (PSP): {workers} times as many as under bsp."
    return f"Each update is applied as it arrives, as {rule:g} of a step."


def misfit(spec: JobSpec, barrier: object) -> tuple[str, object, str] | None:
    """Why the optimisers of a job cannot be driven under a barrier: field, found, expected. None: they can."""
    if not isinstance(barrier, Gate) or spec.workers_hold:
        return None
    applied = "federated.server" if spec.federated else "optimizer"
    clip = spec.applied.clip
    if clips_by_norm(spec.applied) and clip is not None:
        return (
            f"{applied}.clip.norm",
            clip.norm,
            f"none under barrier {barrier.name}, where each update is applied by itself and at another time on each "
            "server, so that none knows its norm over all parameters: clip by value, or choose a barrier with "
            "iterations in common (bsp, aggressive, backup)",
        )
    if barrier.step_scale in (None, "auto") and not knows_step(spec.applied):
        return (
            "synchronization.barrier.step_scale",
            "auto",
            "mean, average, paper or a number with an optimizer of your own: whether n steps of an n-th are one step "
            f"of {spec.applied.name} is not known",
        )
    return None
