"""Compares the processes that an agent should run with those that it runs. Pure.

Orders are level-triggered, so they can be applied repeatedly. An instance is started at most once, even if the agent
restarts.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Final

from controlplane.protocol.messages import ProcessName
from controlplane.protocol.orders import AgentOrders, ProcessOrder

MOST_OVER: Final = 1_000
"""Number of ended processes that are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The difference between the orders and the running processes."""

    start: list[ProcessOrder] = field(default_factory=list)
    stop: list[ProcessName] = field(default_factory=list)
    lost: list[ProcessName] = field(default_factory=list)
    """Wanted but ended: started before this agent restarted, or its end was reported and has been forgotten."""


class ProcessTable:
    """The processes of one agent, running and ended."""

    def __init__(self, started: Iterable[ProcessName] = ()) -> None:
        self._started = set(started)
        self._running: frozenset[ProcessName] = frozenset()  # replaced as a whole: another thread may be reading it
        self._stopping: set[ProcessName] = set()
        self._reported: set[ProcessName] = set()
        self._over: dict[ProcessName, None] = {}
        """The last that ended, oldest first: orders that still contain them must not start them again."""
        self._sequence = -1

    @property
    def started(self) -> Set[ProcessName]:
        """Instances that must not be started again: running ones, and those that the last orders still contain."""
        return self._started

    @property
    def running(self) -> list[ProcessName]:
        """Running and starting processes, in a fixed order."""
        return sorted(self._running, key=lambda name: (name.job, name.role, name.index, name.instance))

    def reconnected(self) -> None:
        """Sequences are compared within one connection; the next orders are accepted with any sequence."""
        self._sequence = -1

    def obey(self, orders: AgentOrders) -> Plan:
        """Apply the orders; older ones than the last change nothing."""
        if orders.sequence < self._sequence:
            return Plan()
        self._sequence = orders.sequence
        wanted = {name_of(order): order for order in orders.processes}
        start = [order for name, order in wanted.items() if name not in self._started and name not in self._over]
        gone = (self._started - self._running) | self._over.keys()
        lost = [name for name in wanted if name in gone - self._reported]
        stop = [name for name in self.running if name not in wanted and name not in self._stopping]
        self._running = self._running | {name_of(order) for order in start}
        self._reported |= set(lost)
        self._stopping |= set(stop)
        self._started = (self._started | self._running) & (wanted.keys() | self._running)
        self._reported &= wanted.keys()
        return Plan(start=start, stop=stop, lost=lost)

    def ended(self, process: ProcessName) -> None:
        """A process has ended, and its end was reported."""
        self._running = self._running - {process}
        self._stopping.discard(process)
        self._over[process] = None
        if len(self._over) > MOST_OVER:
            del self._over[next(iter(self._over))]
        if process in self._started:
            self._reported.add(process)

    def stop_all(self) -> list[ProcessName]:
        """All processes should end; return those that have not been requested to yet."""
        asked = [name for name in self.running if name not in self._stopping]
        self._stopping |= set(asked)
        return asked


def name_of(order: ProcessOrder) -> ProcessName:
    """The process of an order."""
    return ProcessName(job=order.job, role=order.role, index=order.index, instance=order.instance)
