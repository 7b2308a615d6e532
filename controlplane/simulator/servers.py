"""The servers of a job under their orders: quorums, versions, and pulls that wait for a version.

All servers are modelled as one: an update counts when all of it has arrived, and a version is complete when every
server has it. Transfer times to each server are in ``network``.
"""

import math
from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from typing import Any, Final, Protocol

from controlplane.protocol.orders import ServerOrders
from controlplane.simulator.kernel import Kernel

NO_ATTEMPT: Final = -1
"""Used instead of an attempt for workers of a cohort, which does not count attempts."""


class Puller(Protocol):
    """A worker that waits for a version."""

    rank: int
    attempt: int

    def version_is_there(self) -> None:
        """The version may be transferred now."""


class InStep(Protocol):
    """Workers that continue together."""

    def take(self, held: list[tuple[Any, int]], iteration: int) -> bool:
        """Begin with that version, all workers that waited for it; False if each must begin separately."""


class Mathematics(Protocol):
    """The effect of updates on the parameters, if they are computed."""

    def contribute(self, rank: int, samples: int) -> None:
        """A worker's update of the open iteration has arrived; it counts when that is closed."""

    def close(self) -> None:
        """The updates that have arrived make a version."""

    def apply(self, rank: int, samples: int, scale: float, gather: int) -> None:
        """Apply a worker's update alone, as ``scale`` of a step, or ``gather`` updates as one such step."""

    def keep(self, rank: int, iteration: int, samples: int) -> None:
        """A worker's update waits until the barrier releases its worker."""

    def let_in(self, passed: dict[int, int], scale: float, gather: int) -> None:
        """Apply kept updates, by rank up to an iteration, as one sum; each with the weight of one that arrives."""


class Servers:
    """The combined state of all servers of the job."""

    def __init__(
        self, kernel: Kernel, mathematics: Mathematics | None, reach: Callable[[int], None] = lambda _: None
    ) -> None:
        """``reach`` is called with each version when it is complete."""
        self._reach = reach
        self._kernel, self._mathematics = kernel, mathematics
        self.orders: ServerOrders | None = None
        self.version = 0
        self.closed_s: list[float] = []
        """When each version was complete, from version 1 on; in synchronous modes."""
        self.updates = 0
        """The number of updates that counted."""
        self.applied = 0
        """The number of updates in the parameters that a worker would pull now, and of those kept for them (PSP)."""
        self.contributed: dict[int, dict[int, int]] = {}
        """By open iteration: samples by rank."""
        self._held: dict[int, list[tuple[Puller, int]]] = {}
        self._members: dict[int, int] = {}
        self._instances: dict[int, str] = {}
        """The current instance of members and former members, by rank."""
        self._latest_arrival = 0
        self._needed = 0
        """The fewest updates that complete an iteration."""
        self._frozen = False
        """Whether some blocks are on no server: then no version is completed or sent."""
        self.in_step: InStep | None = None
        """Workers that may begin an iteration together; None: each begins separately."""
        self._free_from: float = math.inf
        """From this iteration on, updates take effect without a quorum."""

    def receive(self, orders: ServerOrders) -> None:
        """Newer orders replace older ones as a whole."""
        if self.orders is not None and orders.rank_in_time <= self.orders.rank_in_time:
            return
        was_free = self.orders is not None and self.orders.apply != "quorum"
        self.orders = orders
        self._free_from = math.inf if orders.apply == "quorum" else orders.apply_from
        self._reset_owed({member.rank: member.instance for member in orders.members})
        self._members = {member.rank: member.from_iteration for member in orders.members}
        self._latest_arrival = max(self._members.values(), default=0)
        is_plain = orders.named_from is None and not orders.quorums
        self._needed = sum(first <= self.version for first in self._members.values()) if is_plain else 0
        if orders.apply == "quorum" and was_free:
            # The iterations in between belong to the asynchronous phase: no updates are expected.
            self.version = max(self.version, orders.apply_from)
            self.contributed = {}
        if orders.apply == "release" and self._mathematics is not None:
            self._mathematics.let_in(orders.passed, orders.scale, orders.gather)
        self._close()
        self._let_go()

    def go_back(self, iteration: int) -> None:
        """All servers restart with the values before ``iteration`` and without orders."""
        self.orders, self.version = None, iteration
        self.contributed, self._held, self._members = {}, {}, {}
        self._latest_arrival = self._needed = 0
        self._frozen, self._free_from = False, math.inf

    def freeze(self) -> None:
        """A server is lost: until ``thaw``, no version is completed or sent."""
        self._frozen = True

    def thaw(self) -> None:
        """Every block is on a server again."""
        self._frozen = False
        self._close()
        self._let_go()

    def contributors(self, *, beyond: int | None) -> list[int]:
        """In lockstep: the workers whose updates are missing for a version after ``beyond``; None: after the newest."""
        if self.is_free(self.version):
            return []
        is_older = beyond is not None and beyond < self.version
        return sorted(self.contributed.get(self.version, {}).keys() | (self._members.keys() if is_older else set()))

    def pull(self, puller: Puller, iteration: int) -> None:
        """Call ``puller`` as soon as the version that ``iteration`` begins from is complete."""
        if not self._frozen and (self.version >= iteration or iteration >= self._free_from):
            puller.version_is_there()
        else:
            self._held.setdefault(iteration, []).append((puller, puller.attempt))

    def push(self, rank: int, iteration: int, samples: int) -> bool:
        """An update has arrived completely; False if it no longer counts."""
        if iteration >= self._free_from:
            self._apply(rank, iteration, samples)
            return True
        orders = self.orders
        assert orders is not None
        if iteration < self.version or self._members.get(rank, math.inf) > iteration:
            return False
        if orders.quorums and rank not in orders.quorums.get(iteration, self._members):
            return False
        here = self.contributed.setdefault(iteration, {})
        here[rank] = samples
        self.updates += 1
        if self._mathematics is not None:
            self._mathematics.contribute(rank, samples)
        if len(here) >= self._needed:
            self._close()
        return True

    @property
    def members(self) -> Collection[int]:
        """The workers whose updates count."""
        return self._members

    def is_plain(self, iteration: int) -> bool:
        """Whether that open iteration needs exactly one update of every member."""
        orders = self.orders
        return (
            orders is not None
            and not self._frozen
            and iteration == self.version
            and not self.is_free(iteration)
            and not orders.quorums
            and orders.named_from is None
            and iteration >= self._latest_arrival
        )

    def room(self, iteration: int) -> int:
        """How many members may contribute to it before the last."""
        return len(self._members) - len(self.contributed.get(iteration, ())) - 1

    def push_together(
        self, pushers: Sequence[Puller], ranks: Sequence[int], iteration: int, samples: Sequence[int]
    ) -> None:
        """``push`` for several workers if the iteration is plain and stays open, and ``pull`` for the next one."""
        here = self.contributed.setdefault(iteration, {})
        here.update(zip(ranks, samples, strict=True))
        self.updates += len(pushers)
        self._held.setdefault(iteration + 1, []).extend(zip(pushers, repeat(NO_ATTEMPT), strict=False))

    def part(self) -> None:
        """The cohort is dissolved: waiting workers use their own attempts again."""
        for iteration, held in self._held.items():
            if any(attempt == NO_ATTEMPT for _, attempt in held):
                self._held[iteration] = [
                    (puller, puller.attempt if attempt == NO_ATTEMPT else attempt) for puller, attempt in held
                ]

    def is_free(self, iteration: int) -> bool:
        """Whether updates of that iteration take effect without a quorum."""
        return iteration >= self._free_from

    def awaited(self) -> list[int]:
        """The workers whose updates of the open iteration are missing."""
        here = self.contributed.get(self.version, {})
        return sorted(rank for rank, first in self._members.items() if first <= self.version and rank not in here)

    def _apply(self, rank: int, iteration: int, samples: int) -> None:
        assert self.orders is not None
        self.updates += 1
        self.applied += 1
        if self._mathematics is None:
            return
        if self.orders.apply == "arrival":
            self._mathematics.apply(rank, samples, self.orders.scale, self.orders.gather)
        else:
            self._mathematics.keep(rank, iteration, samples)

    def _close(self) -> None:
        while not self._frozen and not self.is_free(self.version) and self._is_complete():
            self.applied += len(self.contributed.pop(self.version, ()))
            if self._mathematics is not None:
                self._mathematics.close()
            self.version += 1
            self.closed_s.append(self._kernel.now)
            self._reach(self.version)
            held = self._held.pop(self.version, [])
            if self.in_step is None or not self.in_step.take(held, self.version):
                self._answer(held)

    def _is_complete(self) -> bool:
        orders, k = self.orders, self.version
        if orders is None:
            return False
        here = self.contributed.get(k, {})
        if k in orders.quorums:
            return all(self._members.get(rank, math.inf) > k or rank in here for rank in orders.quorums[k])
        if orders.named_from is not None and k >= orders.named_from:
            return False
        if k >= self._latest_arrival:
            # Updates are only accepted from members, but members may have left since.
            return bool(self._members) and here.keys() >= self._members.keys()
        counting = {rank for rank, first in self._members.items() if first <= k}
        return bool(counting) and here.keys() >= counting

    def _reset_owed(self, instances: dict[int, str]) -> None:
        """The update of an earlier instance stays in the sum, and does not replace the current instance's update."""
        for rank, instance in instances.items():
            if self._instances.get(rank, instance) != instance:
                for here in self.contributed.values():
                    here.pop(rank, None)
        self._instances |= instances

    def _let_go(self) -> None:
        """New orders may complete versions that pulls wait for."""
        for iteration in sorted(self._held) if not self._frozen else ():
            if self.version >= iteration or self.is_free(iteration):
                self._answer(self._held.pop(iteration))

    def _answer(self, held: list[tuple[Puller, int]]) -> None:
        for puller, attempt in held:
            if attempt in (puller.attempt, NO_ATTEMPT):
                puller.version_is_there()
