"""Barriers that decide worker by worker: interfaces and their values.

A barrier may do one of three things beyond the lockstep of ``choices.Barrier``: let each worker pass on its own
(``Gate``), cut an iteration short (``Cutter``), or name whose updates make it (``Namer``).

Their cost per event must not grow with the number of workers. So, unlike other policies, these change the state that
they are handed in place and give it back; they still keep nothing themselves.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Protocol, runtime_checkable

import msgspec

from controlplane.core.choices import Release
from controlplane.protocol.base import Value

NO_LIMIT: Final = 2**53
"""A watermark that no worker reaches."""


class Members(Value, frozen=True, kw_only=True):
    """Who counts in a generation, and how far each is."""

    done: dict[int, int]
    """The last iteration that each worker has finished, or needs no longer finish."""
    watermark: dict[int, int]
    """How far each has leave already; one that stands has leave up to what it has done."""
    seed: int
    at_ms: int


class Arrival(Value, frozen=True, kw_only=True):
    """A worker has finished an iteration."""

    rank: int
    done: int
    watermark: int
    """How far it has leave already."""
    busy_s: float
    at_ms: int


StepScale = Literal["auto", "mean", "average", "paper"] | float | None
"""What an update does that is applied by itself: a rule of ``stepping``, or which part of a step; None is ``auto``."""


class Wait(Value, frozen=True, kw_only=True):
    """A worker may not go on: for whom it waits, and the sentence for the operator."""

    waits_for: list[int]
    reason: str


class Passage(Value, frozen=True, kw_only=True):
    """Who may go on now, in the order of release, and who must wait. Ranks in neither go on by older leave."""

    releases: dict[int, Release] = {}
    waits: dict[int, Wait] = {}


NOTHING: Final = Passage()


@runtime_checkable
class Gate(Protocol):
    """An asynchronous barrier: servers apply updates without waiting for a quorum, and leave is given one by one."""

    name: ClassVar[str]
    synchronous: ClassVar[bool]

    @property
    def holds_updates(self) -> bool:
        """Whether servers keep an update until its worker is let pass (PSP Alg. 1 by the letter)."""

    @property
    def step_scale(self) -> StepScale:
        """What one update does at the servers: see ``stepping``."""

    @property
    def state_type(self) -> type[msgspec.Struct]:
        """That of its state."""

    def start(self, members: Members, state: Any | None) -> tuple[Any, Passage]:
        """A generation begins: look at everybody who stands. ``state`` is that of the generation before, if any."""

    def arrive(self, arrival: Arrival, state: Any) -> tuple[Any, Passage]:
        """A worker has finished an iteration: what follows for it, and for those who waited for it."""

    def recheck_at_ms(self, state: Any) -> int | None:
        """When a waiting worker is to be looked at again though nobody arrives; too early does no harm."""

    def recheck(self, at_ms: int, state: Any) -> tuple[Any, Passage]:
        """That time has come."""


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
    """Everybody is to stop processing ``iteration``."""

    iteration: int
    processed: int
    total: int
    reason: str


@runtime_checkable
class Cutter(Protocol):
    """A synchronous barrier that may end an iteration before every sample of it is processed."""

    @property
    def report_s(self) -> float:
        """How often a worker says how far it is, at most."""

    @property
    def state_type(self) -> type[msgspec.Struct]:
        """That of its state."""

    def begin(self, left: Mapping[int, int], state: Any | None) -> tuple[Any, list[Cut]]:
        """A generation begins; ``left`` are those who count no longer, with the shares that they had."""

    def observe(self, processed: Processed, state: Any) -> tuple[Any, Cut | None]:
        """The decision is taken anew (ruling 17); at most once per iteration is it to stop."""

    def close(self, iteration: int, state: Any) -> Any:
        """Every iteration up to this one is complete."""


class Quorum(Value, frozen=True, kw_only=True):
    """Exactly the updates of ``ranks`` make ``iteration``."""

    iteration: int
    ranks: list[int]
    reason: str


@runtime_checkable
class Namer(Protocol):
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
