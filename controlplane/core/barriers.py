"""Barriers as the engine sees them: interfaces and their values.

Every ``Barrier`` says how far workers may go. Some can do more. An ``AsyncBarrier`` lets each worker pass on its own. A
``PartialBarrier`` cuts an iteration short. A ``QuorumBarrier`` names the workers whose updates count. The cost of these
per event must not grow with the number of workers. So, unlike other policies, they change the given state in place and
return it; they still keep nothing themselves.

What follows a synchronous run at equal samples depends on the optimizer (``Stepping``). A step of plain SGD is as long
as the gradient, so n steps of an n-th are one. One that divides the gradient by its own size (Adam and its kin) makes
steps of one length whatever the batch, and one with momentum forgets by the step: with these, n updates are added up
and make one step along their mean.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from controlplane.protocol.base import Value
from controlplane.protocol.catalogue import WORKLOADS
from controlplane.protocol.drawing import PeerSampling
from controlplane.protocol.optimizers import is_proportional, settings
from controlplane.protocol.spec import JobSpec

NO_LIMIT: Final = 2**53
"""Above any watermark that a worker reaches."""


class Progress(Value, frozen=True, kw_only=True):
    """How far each counting worker is: ``done[rank]`` is its last finished iteration, -1 before the first."""

    done: dict[int, int]
    first_iteration: int
    lead: int
    """How many iterations ahead a synchronous barrier may grant, since the servers' quorum holds it."""


class Release(Value, frozen=True, kw_only=True):
    """A worker may start iterations up to ``watermark``."""

    watermark: int
    reason: str


class Barrier(Protocol):
    """Decides when a worker may continue."""

    name: ClassVar[str]
    synchronous: ClassVar[bool]
    """Whether the servers close an iteration only with every worker's contribution."""

    def release(self, progress: Progress) -> dict[int, Release]:
        """How far each rank may go, given every worker's progress."""


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
        """The type of its state."""

    def start(self, members: Members, state: Any | None) -> tuple[Any, Passage]:
        """A generation begins: evaluate every stopped worker.

        ``state`` is that of the generation before, of this barrier's ``state_type``; None before the first one, and
        where another barrier's state does not fit (``core/context.py``).
        """

    def arrive(self, arrival: Arrival, state: Any) -> tuple[Any, Passage]:
        """A worker has finished an iteration: which workers may continue now, including those that waited for it."""

    def recheck_at_ms(self, state: Any) -> int | None:
        """When to evaluate waiting workers again even if no report arrives; too early does no harm."""

    def recheck(self, at_ms: int, state: Any) -> tuple[Any, Passage]:
        """The time given by ``recheck_at_ms`` has come."""


@runtime_checkable
class SampledByPeers(AsyncBarrier, Protocol):
    """An asynchronous barrier that each worker applies by itself: it asks others how far they are.

    The control plane hands out samples in advance, publishes the roster, and receives the reports.
    """

    @property
    def lease_s(self) -> float:
        """For how long samples are handed out in advance."""

    def sampling(self, seed: int) -> PeerSampling:
        """The barrier's part of each worker's orders."""


class Processed(Value, frozen=True, kw_only=True):
    """A worker's message about a running iteration."""

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
        """The type of its state."""

    def begin(self, left: Mapping[int, int], state: Any | None) -> tuple[Any, list[Cut]]:
        """A generation begins; ``left`` has the workers that left, with their shares.

        ``state``: see ``AsyncBarrier``.
        """

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
        """The type of its state."""

    def appoint(self, ranks: list[int], completed: int, state: Any | None) -> tuple[Any, list[Quorum]]:
        """A generation begins, with these workers; fewer of them may be enough for iterations that are under way.

        ``state``: see ``AsyncBarrier``.
        """

    def computed(self, rank: int, iteration: int, state: Any) -> tuple[Any, Quorum | None]:
        """A worker's update is ready; the last one that was needed names the quorum, once per iteration."""

    def close(self, iteration: int, state: Any) -> Any:
        """Every iteration up to this one is complete."""


class Stepping(NamedTuple):
    """How updates are applied: each as ``scale`` of a step, or ``gather`` of them as one along their mean."""

    scale: float
    gather: int


def rule_of(spec: JobSpec, step_scale: StepScale) -> Literal["mean", "average", "paper"] | float:
    """The stepping of this job."""
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


def includes_all_workers(barrier: object) -> bool:
    """Whether each iteration is made of the updates of all who count; of some of them it may be only a part."""
    return not isinstance(barrier, AsyncBarrier | QuorumBarrier)


def is_full(barrier: object) -> bool:
    """Whether each iteration is made of the whole updates of all who count."""
    return includes_all_workers(barrier) and not isinstance(barrier, PartialBarrier)
