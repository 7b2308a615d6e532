"""A script of orders for one worker, and what the worker makes of it."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from controlplane.protocol.messages import Computed, IterationReport, Quiesced, WorkerFinished
from controlplane.protocol.orders import Orders
from controlplane.protocol.schedule import Task
from controlplane.protocol.worker import Term

Where = Literal["pull", "compute", "push"]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Something that happens in the middle of an iteration."""

    where: Where
    iteration: int
    heard: tuple[Orders, ...] = ()
    after: int = 1
    """In ``compute``: after so many samples."""
    term: Term = (0, 0)
    """The servers have learned of this incarnation and generation by then."""


@dataclass(frozen=True)
class Script:
    """What a worker hears."""

    at_rest: tuple[Orders, ...]
    """One after the other, each when it waits."""
    within: tuple[Moment, ...] = ()


@dataclass
class Stage:
    """One script as it is played, and a record of what the worker did."""

    script: Script
    term: Term = (0, 1)
    """Incarnation and generation of the servers: they refuse updates of older ones."""
    started: list[Task] = field(default_factory=list)
    said: list[Any] = field(default_factory=list)
    """Without its numbers."""
    reported: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Generation, iteration, position and samples."""

    def __post_init__(self) -> None:
        self._at_rest, self._within = deque(self.script.at_rest), list(self.script.within)

    def next_at_rest(self) -> Orders | None:
        """What is heard next by a worker that waits; None: no more."""
        return self.published(self._at_rest.popleft()) if self._at_rest else None

    def moments(self, where: Where, iteration: int, done: int = 1) -> Iterator[Orders]:
        """What is heard there; each moment comes once."""
        for moment in [*self._within]:
            if (moment.where, moment.iteration) == (where, iteration) and done >= moment.after:
                self._within.remove(moment)
                self.term = max(self.term, moment.term)
                yield from map(self.published, moment.heard)

    def published(self, orders: Orders) -> Orders:
        """Servers learn of a generation no later than workers."""
        self.term = max(self.term, (orders.incarnation, orders.generation))
        return orders

    def take(self, message: object) -> None:
        """The worker says this."""
        if isinstance(message, Quiesced | Computed | WorkerFinished):
            self.said.append(msgspec.structs.replace(message, number=0))
        elif isinstance(message, IterationReport):
            self.reported.append((message.generation, message.iteration, message.position, message.samples))

    @property
    def outcome(self) -> tuple[Any, ...]:
        """All that drivers must do alike."""
        assert not self._within, "a moment of the script never came"
        return self.started, self.said, self.reported
