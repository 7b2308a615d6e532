"""The policies that an autopilot may choose, by the name under which they are compared."""

from msgspec.structs import replace

from controlplane.core.barriers import AsyncBarrier, PartialBarrier, QuorumBarrier
from controlplane.core.combinations import misfit
from controlplane.policies import registry
from controlplane.protocol.autopilot import Autopilot
from controlplane.protocol.spec import Choice, JobSpec, SpecError, Synchronization, check_combination

EVEN = Choice(name="uniform")


def alternatives(spec: JobSpec, autopilot: Autopilot) -> dict[str, Synchronization]:
    """The alternatives that this job can use, the submitted policies first.

    With a synchronous barrier each policy of ``batching`` is an alternative. With an asynchronous one each worker goes
    at its own pace, so shares matter little: they are even, unless the spec was submitted otherwise.
    """
    own = spec.synchronization
    found = {title(own): own}
    for barrier in (own.barrier, *autopilot.barriers):
        free = isinstance(registry.policy_type("barrier", barrier), AsyncBarrier)
        for batching in (EVEN,) if free else autopilot.batching:
            other = _with(own, batching, barrier)
            if _is_possible(spec, other) and other not in found.values():
                found[title(other)] = other
    return found


def title(synchronization: Synchronization) -> str:
    """A readable name of the two policies that an autopilot changes: ``lb-bsp-cpu with ema, bsp``."""
    return f"{_named(synchronization.batching)}, {_named(synchronization.barrier)}"


def check(spec: JobSpec) -> None:
    """Raise ``SpecError`` unless every policy that the autopilot may choose is registered and fits the job."""
    if spec.autopilot is None:
        return
    own = spec.synchronization
    for at, batching in enumerate(spec.autopilot.batching):
        _check(spec, _with(own, batching, own.barrier), f"autopilot.batching[{at}]")
    for at, barrier in enumerate(spec.autopilot.barriers):
        _check(spec, _with(own, EVEN, barrier), f"autopilot.barriers[{at}]")
        if not _keeps_whole(barrier):
            expected = (
                "a barrier under which every update counts whole: what a shortened iteration is worth cannot be "
                "predicted from times"
            )
            raise SpecError(f"autopilot.barriers[{at}]", barrier.name, expected)
    if spec.guard is not None and spec.autopilot.barriers and spec.autopilot.learn < spec.guard.reference:
        expected = (
            f"at least guard.reference ({spec.guard.reference}): otherwise barriers change before the guard can judge "
            f"them; set learn to {spec.guard.reference}, or leave out autopilot.barriers"
        )
        raise SpecError("autopilot.learn", spec.autopilot.learn, expected)


def _keeps_whole(barrier: Choice) -> bool:
    kind = registry.policy_type("barrier", barrier)
    return not isinstance(kind, PartialBarrier | QuorumBarrier)


def _check(spec: JobSpec, other: Synchronization, field: str) -> None:
    try:
        registry.check(other)
    except SpecError as error:
        inner = error.field.removeprefix("synchronization.batching").removeprefix("synchronization.barrier")
        raise SpecError(field + inner.removesuffix("synchronization"), error.found, error.expected) from None


def _is_possible(spec: JobSpec, other: Synchronization) -> bool:
    changed = replace(spec, synchronization=other)
    try:
        registry.check(other)
        check_combination(changed)
    except SpecError:
        return False
    barrier = registry.resolve("barrier", other.barrier)
    return registry.refusal(changed) is None and misfit(changed, barrier) is None


def _with(own: Synchronization, batching: Choice, barrier: Choice) -> Synchronization:
    return replace(own, batching=batching, barrier=barrier)


def _named(choice: Choice) -> str:
    """``lb-bsp-cpu with ema``, ``ssp with staleness 3``."""
    extra = ", ".join(_parameter(key, value) for key, value in sorted(choice.parameters.items()))
    return f"{choice.name} with {extra}" if extra else choice.name


def _parameter(key: str, value: object) -> str:
    found = value.get("name", "") if isinstance(value, dict) else value
    return f"{found}" if isinstance(found, str) else f"{key} {found}"
