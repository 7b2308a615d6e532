"""The agreement of an attached job's ranks on shares, pauses and the end, without waiting for the control plane. Pure.

An iteration sums one small vector over all ranks (``encode``), in addition to the gradients. Every rank fills in its
own row: the duration of its last sum, the number of its orders, and the last iteration that its loader may draw before
it has read the sum. The rank with the newest orders adds their content. All ranks read the same sum (``read``): new
shares apply from the first iteration that no rank has promised, and a pause or the end at the boundary that all have
reached. One rank with a connection to the control plane is sufficient, and no rank waits for it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from controlplane.protocol.dividing import divide, within
from controlplane.protocol.filling import RULES, lr_scale
from controlplane.protocol.orders import Orders


class Row(NamedTuple):
    """The row of one rank."""

    promised: int = -1
    """The rank draws no samples of iterations after this one before it has read the sum."""
    coming: int = 0
    """Samples that the rank's stream has for the next iteration."""
    ceiling: int = 0
    """Maximum number of samples that fit into its device's memory; 0: not known."""
    gives_up: int = 0
    """1: this rank could not continue with unequal shares, so they stay as they are."""
    leaves: int = 0
    """1: its launcher will end and restart it soon: all ranks leave at the same boundary."""
    timed: int = -1
    """The iteration of the times; -1: none."""
    incarnation: int = -1
    generation: int = -1
    sequence: int = -1
    """Sequence number of its orders; -1: it has none."""
    sum_s: float = 0.0
    """From its last gradient passed to the sum until its end: the shortest is the transfer, the rest was waiting."""
    exchange_s: float = 0.0
    """The same for the exchange before the iteration, from the end of the rank's own work."""
    link_s: float = 0.0
    """Time that this rank's own links need for the traffic of that sum; 0: not known."""
    usual_s: float = 0.0
    """Its iteration time, smoothed; 0: not known."""


class Columns(NamedTuple):
    """The rows of all ranks by column, each as it was summed: with many ranks that costs a part of row by row."""

    promised: Sequence[float]
    coming: Sequence[float]
    ceiling: Sequence[float]
    gives_up: Sequence[float]
    leaves: Sequence[float]
    timed: Sequence[float]
    incarnation: Sequence[float]
    generation: Sequence[float]
    sequence: Sequence[float]
    sum_s: Sequence[float]
    exchange_s: Sequence[float]
    link_s: Sequence[float]
    usual_s: Sequence[float]

    def leader(self, before: int) -> int:
        """The rank with the newest orders: the previous leader, or the first of those with newer ones."""
        newness = [*zip(self.incarnation, self.generation, self.sequence, strict=True)]
        newest = max(newness)
        return before if newness[before] == newest else newness.index(newest)


ROUND_S: Final = 0.1
"""In loops with shorter iterations exchanges are made only this often: the cost of a sum hardly depends on its size."""

FIRST_ROUNDS: Final = 50
"""Each of the first iterations has an exchange, until shares have converged."""

MOST_APART: Final = 16
"""Maximum number of iterations between two exchanges."""

AWAITED: Final = 8
"""The first exchanges are made and awaited at the end of their iteration: its times are known then, and orders that
arrived during it apply from the next iteration on. Later ones start with the iteration and cost no waiting.
"""

AWAITED_AGAIN: Final = 4
"""After a large change of shares this many exchanges are awaited, since further changes follow."""

LARGE: Final = 0.1
"""A change is large if a rank's share changes by more than this fraction of an equal share."""

FIELDS: Final = len(Row._fields)
NO_STOP: Final = -1
HEAD: Final = 6
"""Values before the leader's shares: whether it has orders, their version, where to stop, whether to pause, the batch
of the next pass, and the rule of the learning rate.
"""


class Change(NamedTuple):
    """Shares, and the first iteration in which they apply."""

    first: int
    version: int
    shares: list[int]


class Timeline:
    """The agreed shares, including past changes that may still be needed."""

    __slots__ = ("_changes",)

    def __init__(self, shares: Sequence[int], *, first: int = 0, version: int = 0) -> None:
        self._changes = [Change(first, version, list(shares))]

    def shares(self, iteration: int) -> list[int]:
        """Shares of all ranks in that iteration."""
        return next((change.shares for change in reversed(self._changes) if change.first <= iteration), self.oldest)

    def add(self, change: Change) -> None:
        """Add a change, from a later iteration than the previous ones."""
        if change.first <= self.newest.first:
            raise ValueError(f"shares from iteration {change.first} on, behind those from {self.newest.first} on")
        self._changes.append(change)

    def forget(self, iteration: int) -> None:
        """Forget iterations before that one."""
        while len(self._changes) > 1 and self._changes[1].first <= iteration:
            del self._changes[0]

    @property
    def newest(self) -> Change:
        """The last change, which may not apply yet."""
        return self._changes[-1]

    @property
    def oldest(self) -> list[int]:
        """The shares before any change that is known."""
        return self._changes[0].shares


class Settled(NamedTuple):
    """The result of an exchange, the same on all ranks."""

    columns: Columns
    hold: bool
    """Stop before the next iteration."""
    stop: bool
    """Do not begin the next iteration."""
    leaves: bool
    """Do not begin the next iteration either; the ranks will be restarted, and the job continues."""
    change: Change | None
    """New shares."""
    next_round: int
    """The next iteration that has an exchange."""


class Agreement:
    """One rank's part in the agreement.

    Args:
        rank: its own.
        timeline: the initial shares, the same on all ranks.
        multiple: shares are multiples of this number.
        fixed: whether shares never change, regardless of orders.
        grows: whether the global batch may grow: each rank's learning rate follows it.
    """

    def __init__(
        self, rank: int, timeline: Timeline, *, multiple: int = 1, fixed: bool = False, grows: bool = False
    ) -> None:
        self.rank, self.timeline, self.multiple = rank, timeline, multiple
        self.world = len(timeline.newest.shares)
        self.base = self.batch = sum(timeline.newest.shares)
        """Samples of a full iteration over all ranks: at the start, and in the current pass."""
        self.fixed, self.grows = fixed, grows
        self._next_batch, self._rule = 0, ""
        self.leader = 0
        """The rank with the newest orders, according to the last sum."""
        self.refusal = ""
        """Why the shares in the newest orders cannot be applied; empty: they can."""
        self._orders: Orders | None = None
        self._wanted = timeline.newest.shares
        self._ceilings: Sequence[float] = []
        self._rounds, self._awaited = 0, AWAITED

    def receive(self, orders: Orders) -> None:
        """Accept orders that are newer than all previous ones."""
        self._orders, self.refusal = orders, self._objection(orders)

    @property
    def is_awaited(self) -> bool:
        """Whether the next exchange is made and awaited at the end of its iteration; the same on all ranks."""
        return self._rounds < self._awaited

    @property
    def width(self) -> int:
        """The length of the vector."""
        return self.world * (FIELDS + 1) + HEAD

    def encode(self, row: Row) -> list[float]:
        """Return this rank's part of the sum."""
        orders, vector = self._orders, [0.0] * self.width
        if orders is not None:
            row = row._replace(incarnation=orders.incarnation, generation=orders.generation, sequence=orders.sequence)
        vector[self.rank : self.world * FIELDS : self.world] = map(float, row)
        if self.rank == self.leader and orders is not None:
            stop_at = NO_STOP if orders.stop_at is None else orders.stop_at
            has_shares = len(orders.shares) == self.world and sum(orders.shares) == self.batch
            head = [1.0, float(orders.shares_version if has_shares else 0), float(stop_at), float(orders.hold)]
            head += [float(orders.fill_batch), float(RULES.index(orders.fill_rule))]
            shares = [float(share) for share in orders.shares] if has_shares else [0.0] * self.world
            vector[self.world * FIELDS :] = head + shares
        return vector

    def read(self, vector: Sequence[float], iteration: int) -> Settled:
        """Interpret the sum of all ranks' rows after ``iteration``; the result is the same on each of them."""
        world = self.world
        rows = Columns(*[vector[at * world : (at + 1) * world] for at in range(FIELDS)])
        has_orders, version, stop_at, hold, fill, rule = map(int, vector[world * FIELDS : world * FIELDS + HEAD])
        stop = bool(has_orders) and 0 <= stop_at <= iteration + 1
        self.fixed |= any(rows.gives_up)
        if has_orders:
            self._next_batch, self._rule = fill, RULES[rule]
        if has_orders and version > self.timeline.newest.version:
            self._wanted = [int(share) for share in vector[world * FIELDS + HEAD :]]
        else:
            version = self.timeline.newest.version
        change = self._agree(rows, version)
        self.leader = rows.leader(self.leader)
        leaves = not stop and any(rows.leaves)
        holds = bool(has_orders) and bool(hold) and not stop
        after = self._round_after(iteration, rows, stop_at)
        return Settled(columns=rows, hold=holds, stop=stop, leaves=leaves, change=change, next_round=after)

    def _round_after(self, iteration: int, rows: Columns, stop_at: int) -> int:
        """The next exchange: less frequent in a fast loop, and always in the last iteration before a stop."""
        self._rounds += 1
        if self._rounds < FIRST_ROUNDS or not all(rows.usual_s):
            return iteration + 1
        after = iteration + max(1, min(MOST_APART, int(ROUND_S / max(rows.usual_s))))
        return min(after, stop_at - 1) if stop_at > iteration + 1 else after

    def begin_pass(self, iteration: int) -> None:
        """A pass begins with that iteration, after everything that was drawn: from here on the batch may be larger, or
        smaller again, but not below the script's.
        """
        size, newest = self._next_batch, self.timeline.newest
        if self.fixed or not self.grows or not self._rule or size == self.batch or size % self.multiple:
            return
        if size < self.base:
            return
        ceilings = [int(ceiling) for ceiling in self._ceilings] or [0] * self.world
        shares = within(divide(self._wanted, size, self.multiple), ceilings, self.multiple)
        if size > self.batch and any(0 < ceiling < share for share, ceiling in zip(shares, ceilings, strict=True)):
            return
        self.batch, self._wanted = size, shares
        self.timeline = Timeline(shares, first=iteration, version=newest.version)

    @property
    def lr_scale(self) -> float:
        """The factor of this pass's learning rate."""
        return lr_scale(self._rule, self.batch, self.base) if self.batch != self.base else 1.0

    def _agree(self, rows: Columns, version: int) -> Change | None:
        newest = self.timeline.newest
        if self.fixed or (version == newest.version and rows.ceiling == self._ceilings):
            return None
        self._ceilings = rows.ceiling
        ceilings = [int(ceiling) for ceiling in rows.ceiling]
        fitted = within(divide(self._wanted, self.batch, self.multiple), ceilings, self.multiple)
        if version == newest.version and fitted == newest.shares:
            return None
        change = Change(1 + max(newest.first, int(max(rows.promised))), version, fitted)
        self.timeline.add(change)
        most = max(abs(after - before) for after, before in zip(fitted, newest.shares, strict=True))
        if most * self.world > LARGE * self.batch:
            self._awaited = max(self._awaited, self._rounds + 1 + AWAITED_AGAIN)
        return change

    def _objection(self, orders: Orders) -> str:
        if not orders.shares:
            return ""
        if len(orders.shares) != self.world:
            return f"shares for {len(orders.shares)} ranks were ordered, there are {self.world}: they stay as they are"
        if sum(orders.shares) != self.batch and not (self.grows and orders.fill_rule):
            return (
                f"shares of {sum(orders.shares)} samples per iteration were ordered, the ranks take {self.batch}:"
                " they stay as they are; submit the job with the batch size of the script"
            )
        return ""
