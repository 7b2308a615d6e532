"""The parameters that a worker pulled last, and the copies that it reports and sends after the loss of a server."""

from typing import Protocol

from controlplane.protocol.messages import Copies, CopiesHeld
from controlplane.protocol.orders import Orders
from controlplane.simulator.refilling import Refills


class Holder(Protocol):
    """The worker whose copy it is."""

    rank: int
    instance: str
    number: int

    @property
    def is_alive(self) -> bool:
        """Whether it still acts."""

    def say(self, message: CopiesHeld) -> None:
        """Send a message with the next number."""


class PulledCopy:
    """The part of one worker instance."""

    __slots__ = ("_asked", "_given", "_holder", "_refills", "steps", "version")

    def __init__(self, holder: Holder, refills: Refills) -> None:
        self._holder, self._refills = holder, refills
        self.version: int | None = None
        """None: nothing was pulled yet."""
        self.steps = 0
        """Updates that the copy includes."""
        self._asked = 0
        """The last loss for which the worker was asked for its copy."""
        self._given: set[int] = set()
        """The blocks that it gave for that."""

    def help_to_refill(self, orders: Orders) -> None:
        """Report the copies of lost blocks, and send requested ones, independently of other work."""
        holder, version = self._holder, self.version
        if orders.refill > self._asked:
            self._asked, self._given = orders.refill, set()
            copies = [Copies(version=version, steps=self.steps, blocks=orders.lost)] if version is not None else []
            holder.say(CopiesHeld(number=holder.number + 1, refill=orders.refill, copies=copies))
        elif version is not None and (due := sorted(set(orders.fills) - self._given)):
            self._given.update(due)
            instance = holder.instance
            self._refills.give(holder.rank, due, version, lambda: holder.is_alive and holder.instance == instance)
