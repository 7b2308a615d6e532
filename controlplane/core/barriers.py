"""What barriers can do beyond the lockstep of ``choices.Barrier``, and what goes together with them.

An ``AsyncBarrier`` lets each worker pass on its own. A ``PartialBarrier`` cuts an iteration short. A ``QuorumBarrier``
names the workers whose updates count. Their cost per event must not grow with the number of workers. So, unlike other
policies, these change the given state in place and return it; they still keep nothing themselves.

``conflict`` checks what policies can do, never their names, so it accepts both policies and their classes.

What follows a synchronous run at equal samples depends on the optimizer (``Stepping``). A step of plain SGD is as long
as the gradient, so n steps of an n-th are one. One that divides the gradient by its own size (Adam and its kin) makes
steps of one length whatever the batch, and one with momentum forgets by the step: with these, n updates are added up
and make one step along their mean.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from controlplane.core.choices import Budgeting, Partitioned, Release
from controlplane.protocol.base import Value
from controlplane.protocol.catalogue import WORKLOADS
from controlplane.protocol.optimizers import clips_by_norm, is_proportional, knows_step, settings
from controlplane.protocol.spec import JobSpec

NO_LIMIT: Final = 2**53
"""Above any watermark that a worker reaches."""


class Members(Value, frozen=True, kw_only=True):
    """The workers of a generation and the progress of each."""

    done: dict[int, int]
    """The last iteration that each worker has finished, or needs no longer finish."""
    watermark: dict[int, int]
    """The watermark granted to each; a stopped worker's watermark is its last completed iteration."""
    seed: int
    at_ms: int


class Arrival(Value, frozen=True, kw_only=True):
    """A worker has finished an iteration."""

    rank: int
    done: int
    watermark: int
    """The watermark already granted to it."""
    busy_s: float
    at_ms: int


StepScale = Literal["auto", "mean", "average", "paper"] | float | None
"""What an update does that is applied by itself: a rule of ``stepping``, or which part of a step; None is ``auto``."""


class Wait(Value, frozen=True, kw_only=True):
    """A worker must wait: for which workers, and the message for the operator."""

    waits_for: list[int]
    reason: str


class Passage(Value, frozen=True, kw_only=True):
    """Which workers may continue now, in the order of release, and which must wait. Other ranks continue under earlier
    grants.
    """

    releases: dict[int, Release] = {}
    waits: dict[int, Wait] = {}


NOTHING: Final = Passage()


@runtime_checkable
class AsyncBarrier(Protocol):
    """An asynchronous barrier: servers apply updates without waiting for a quorum; each worker has its own grants."""

    name: ClassVar[str]
    synchronous: ClassVar[bool]

    @property
    def holds_updates(self) -> bool:
        """Whether servers hold an update until the barrier releases its worker (PSP Alg. 1, literally)."""

    @property
    def step_scale(self) -> StepScale:
        """What one update does at the servers: see ``stepping``."""

    @property
    def state_type(self) -> type[msgspec.Struct]:
        """That of its state."""

    def start(self, members: Members, state: Any | None) -> tuple[Any, Passage]:
        """A generation begins: evaluate every stopped worker. ``state`` is that of the generation before, if any."""

    def arrive(self, arrival: Arrival, state: Any) -> tuple[Any, Passage]:
        """A worker has finished an iteration: which workers may continue now, including those that waited for it."""

    def recheck_at_ms(self, state: Any) -> int | None:
        """When to evaluate waiting workers again even if no report arrives; too early does no harm."""

    def recheck(self, at_ms: int, state: Any) -> tuple[Any, Passage]:
        """The time given by ``wake`` has come."""


class Processed(Value, frozen=True, kw_only=True):
    """What a worker says about an iteration that is under way."""

    rank: int
    iteration: int
    samples: int
    requests: bool
    """It has nothing left to process: the synchronisation request of A-BSP Alg. 1."""
    total: int
    """N: the sum of this iteration's shares (ruling 17)."""
    loss: float | None = None
    """Mean over its samples, once it has reported."""


class Cut(Value, frozen=True, kw_only=True):
    """All workers should stop processing ``iteration``."""

    iteration: int
    processed: int
    total: int
    reason: str


@runtime_checkable
class PartialBarrier(Protocol):
    """A synchronous barrier that may end an iteration before every sample of it is processed."""

    @property
    def report_s(self) -> float:
        """How often a worker says how far it is, at most."""

    @property
    def state_type(self) -> type[msgspec.Struct]:
        """That of its state."""

    def begin(self, left: Mapping[int, int], state: Any | None) -> tuple[Any, list[Cut]]:
        """A generation begins; ``left`` has the workers that left, with their shares."""

    def observe(self, processed: Processed, state: Any) -> tuple[Any, Cut | None]:
        """Decide again (ruling 17); the answer may be to stop at most once per iteration."""

    def close(self, iteration: int, state: Any) -> Any:
        """Every iteration up to this one is complete."""


class Quorum(Value, frozen=True, kw_only=True):
    """Exactly the updates of ``ranks`` make ``iteration``."""

    iteration: int
    ranks: list[int]
    reason: str


@runtime_checkable
class QuorumBarrier(Protocol):
    """A synchronous barrier that names whose updates make an iteration: the others are backups (redundant work)."""

    @property
    def state_type(self) -> type[msgspec.Struct]:
        """That of its state."""

    def appoint(self, ranks: list[int], completed: int, state: Any | None) -> tuple[Any, list[Quorum]]:
        """A generation begins, with these workers; fewer of them may be enough for iterations that are under way."""

    def computed(self, rank: int, iteration: int, state: Any) -> tuple[Any, Quorum | None]:
        """A worker's update is ready; the last one that was needed names the quorum, once per iteration."""

    def close(self, iteration: int, state: Any) -> Any:
        """Every iteration up to this one is complete."""


def conflict(batching: object, barrier: object, data: object) -> str | None:
    """Why these do not go together, as a sentence; None: they do."""
    if isinstance(barrier, QuorumBarrier) and isinstance(data, Partitioned):
        return (
            f"barrier {_name(barrier)} drops the updates of late workers, and with data {_name(data)} nobody else "
            "draws their samples: data of slow workers would hardly count"
        )
    if isinstance(batching, Budgeting) and isinstance(barrier, AsyncBarrier):
        return (
            f"batching {_name(batching)} gives all workers one time budget per iteration, and under barrier "
            f"{_name(barrier)} they have no iterations in common"
        )
    if isinstance(batching, Budgeting) and isinstance(barrier, PartialBarrier):
        return f"both batching {_name(batching)} and barrier {_name(barrier)} decide when an iteration is cut short"
    if isinstance(batching, Budgeting) and isinstance(barrier, QuorumBarrier):
        return (
            f"under batching {_name(batching)} all workers are ready at the same time, and barrier {_name(barrier)} "
            "would drop updates that no worker has to wait for"
        )
    return None


def _name(policy: object) -> str:
    name: str = getattr(policy, "name", type(policy).__name__)
    return name


class Stepping(NamedTuple):
    """How updates are applied: each as ``scale`` of a step, or ``gather`` of them as one along their mean."""

    scale: float
    gather: int


def rule_of(spec: JobSpec, step_scale: StepScale) -> Literal["mean", "average", "paper"] | float:
    """What holds for this job."""
    if step_scale is not None and step_scale != "auto":
        return step_scale
    workload = WORKLOADS.get(spec.workload.name)
    adds_up = workload is not None and workload.sums
    return "mean" if adds_up or is_proportional(spec.applied) else "average"


def stepping_of(spec: JobSpec, step_scale: StepScale, workers: int, *, is_ending: bool = False) -> Stepping:
    """The same as servers have it; near the end, when no more may come, nothing is added up any more."""
    rule, workers = rule_of(spec, step_scale), max(1, workers)
    if rule == "average" and not is_ending:
        return Stepping(scale=1.0, gather=workers)
    if rule in ("mean", "average"):
        return Stepping(scale=1.0 / workers, gather=1)
    return Stepping(scale=1.0 if rule == "paper" else float(rule), gather=1)


def step_sentence(spec: JobSpec, step_scale: StepScale, workers: int) -> str:
    """One plain sentence on it."""
    rule, names = rule_of(spec, step_scale), ", ".join(dict.fromkeys(each.name for _, each in settings(spec.applied)))
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


def has_everybody(barrier: object) -> bool:
    """Whether each iteration is made of the updates of all who count; of some of them it may be only a part."""
    return not isinstance(barrier, AsyncBarrier | QuorumBarrier)


def is_full(barrier: object) -> bool:
    """Whether each iteration is made of the whole updates of all who count."""
    return has_everybody(barrier) and not isinstance(barrier, PartialBarrier)


def misfit(spec: JobSpec, barrier: object) -> tuple[str, object, str] | None:
    """Why a job cannot be driven under a barrier: field, found, expected. None: it can."""
    if spec.workers_hold and not has_everybody(barrier):
        what = "communication all-reduce" if spec.reduces else "server_mode aggregating"
        expected = f"one with everybody in every iteration (bsp, aggressive) with {what}, where workers hold the"
        need = f"parameters: {_name(barrier)} needs servers that take each worker's update by itself"
        return "synchronization.barrier.name", _name(barrier), f"{expected} {need}"
    if not isinstance(barrier, AsyncBarrier):
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
            "mean, average, paper or a number with an optimizer that you wrote: whether n steps of an n-th are one "
            f"step of {spec.applied.name} is not known",
        )
    return None
