"""Lost servers in virtual time: their blocks are restored from workers' copies, as in ``workers.trainer.refilling``.

From the loss of a server until its blocks are restored, no worker gets a version and no update counts. An exchange in
progress is repeated with the lost servers only. In lockstep, workers that had pushed a later update push it again: that
takes time, and only optimizer state is lost. In asynchronous modes the lost blocks go back to the values that the
worker had pulled.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from controlplane.protocol.messages import BlocksFilled, Copies, CopiesHeld
from controlplane.protocol.orders import Block, Orders, ServerOrders
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.network import Network
from controlplane.simulator.server_processes import ServerProcesses
from controlplane.simulator.servers import Servers

Act = tuple[Callable[..., None], tuple[object, ...]]


class Values(Protocol):
    """The parameters, if they are computed."""

    def refill(self, rank: int, first: float, last: float, *, reverts: bool) -> None:
        """Restore a part of the parameters; with ``reverts``, to the values that the worker of that rank last pulled.

        ``first`` and ``last`` are the part's bounds, as fractions of all parameters.
        """


class Refills:
    """The lost servers of one job, and callbacks that wait for them."""

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        processes: ServerProcesses,
        servers: Servers,
        values: Values | None,
        *,
        elements: int,
    ) -> None:
        """``elements``: number of all parameters."""
        self._kernel, self._network, self._processes, self._servers = kernel, network, processes, servers
        self._values, self._elements = values, elements
        self.losses = 0
        """The number of servers lost so far; an exchange during which it changed is incomplete."""
        self._blocks: dict[int, Block] = {}
        """Blocks of all servers, by index."""
        self._lost: dict[int, set[int] | None] = {}
        """By lost server: the blocks that its next instance awaits; None if it has no orders yet."""
        self._dead: dict[int, str] = {}
        """By lost server: the instance that ended."""
        self._filled: set[int] = set()
        self._copied: int | None = None
        """The lowest version of the copies sent."""
        self._waiting: list[Act] = []
        self._ending, self._left = 0, 0
        """The number of updates that must be pushed again before training continues."""

    @property
    def is_whole(self) -> bool:
        """Whether every block is on a server."""
        return not self._lost

    def sizes(self) -> dict[int, int]:
        """Bytes at each server that is lost or was lost last, by the placement."""
        found: dict[int, int] = {}
        for block in self._blocks.values():
            if block.server in self._dead:
                found[block.server] = found.get(block.server, 0) + block.bytes
        return found

    def wait(self, act: Callable[..., None], *arguments: object) -> None:
        """Call ``act`` when all blocks are restored, which may be now."""
        if self.is_whole:
            self._kernel.after(0.0, act, *arguments)
        else:
            self._waiting.append((act, arguments))

    def place(self, blocks: Sequence[Block]) -> None:
        """Use this placement."""
        self._blocks = {block.index: block for block in blocks}
        for index in sorted({block.server for block in blocks}):
            if self._processes.is_over(index):
                self.lose(index)

    def lose(self, index: int) -> None:
        """A server has ended; its blocks are lost."""
        held = {block.index for block in self._blocks.values() if block.server == index}
        if not held or self._dead.get(index) == self._processes.instance(index):
            return
        if self.is_whole:
            self._dead, self._filled, self._copied = {}, set(), None
        self.losses += 1
        self._lost[index], self._dead[index] = None, self._processes.instance(index)
        self._filled -= held
        self._servers.freeze()

    def receive(self, index: int, orders: ServerOrders) -> None:
        """Orders for one server: they name the blocks that workers will send to it."""
        if index in self._lost and self._processes.instance(index) != self._dead[index] and orders.blocks:
            self._lost[index] = set(orders.awaits)
            self._look()

    def give(self, rank: int, blocks: Sequence[int], version: int, is_alive: Callable[[], bool]) -> None:
        """A worker sends its copies, which are of that version, to the servers that await them."""
        for server in sorted({self._blocks[index].server for index in blocks}):
            there = [index for index in blocks if self._blocks[index].server == server]
            size = sum(self._blocks[index].bytes for index in there)
            arrival = (rank, there, version, is_alive, server, self._processes.instance(server))
            self._network.transfer(rank, {server: size}, 0, 0, self._given, *arrival)

    def go_back(self) -> None:
        """All servers restart: no blocks are missing any more, and no worker waits."""
        self.losses += 1
        self._lost, self._dead, self._waiting = {}, {}, []

    def _given(
        self, rank: int, blocks: list[int], version: int, is_alive: Callable[[], bool], server: int, instance: str
    ) -> None:
        if not is_alive() or self._processes.instance(server) != instance or server not in self._lost:
            return
        self._filled |= set(blocks)
        self._copied = version if self._copied is None else min(self._copied, version)
        reverts = self._servers.is_free(self._servers.version)
        if self._values is not None:
            for block in (self._blocks[index] for index in blocks):
                part = block.start / self._elements, block.stop / self._elements
                self._values.refill(rank, *part, reverts=reverts)
        self._processes.say(server, instance, lambda number: BlocksFilled(number=number, blocks=blocks))
        self._look()

    def _look(self) -> None:
        """Once all copies have arrived, push the updates again that they lack, and continue training."""
        if self._ending == self.losses or any(each is None or each - self._filled for each in self._lost.values()):
            return
        self._ending = self.losses
        again = self._servers.contributors(beyond=self._copied)
        sizes, self._left = self.sizes(), len(again)
        for rank in again:
            self._network.transfer(rank, sizes, self._servers.version, 0, self._pushed_again, self.losses)
        if not again:
            self._go_on()

    def _pushed_again(self, losses: int) -> None:
        if losses == self.losses:
            self._left -= 1
            if self._left == 0:
                self._go_on()

    def _go_on(self) -> None:
        self._lost = {}
        waiting, self._waiting = self._waiting, []
        self._servers.thaw()
        for act, arguments in waiting:
            self._kernel.after(0.0, act, *arguments)


class Holder(Protocol):
    """The worker with the copy."""

    rank: int
    instance: str
    number: int

    @property
    def is_alive(self) -> bool:
        """Whether it is alive."""

    def say(self, message: CopiesHeld) -> None:
        """Send a message with the next number."""


class PulledCopy:
    """One worker instance's part in a refill."""

    __slots__ = ("_asked", "_given", "_holder", "_refills", "steps", "version")

    def __init__(self, holder: Holder, refills: Refills) -> None:
        self._holder, self._refills = holder, refills
        self.version: int | None = None
        """The pulled version; None if nothing was pulled yet."""
        self.steps = 0
        """The number of updates in the copy."""
        self._asked = 0
        """The last refill for which the worker's copy was requested."""
        self._given: set[int] = set()
        """The blocks that it has sent for it."""

    def help_to_refill(self, orders: Orders) -> None:
        """Report copies of lost blocks and send requested ones, independently of other work."""
        holder, version = self._holder, self.version
        if orders.refill > self._asked:
            self._asked, self._given = orders.refill, set()
            copies = [Copies(version=version, steps=self.steps, blocks=orders.lost)] if version is not None else []
            holder.say(CopiesHeld(number=holder.number + 1, refill=orders.refill, copies=copies))
        elif version is not None and (due := sorted(set(orders.fills) - self._given)):
            self._given.update(due)
            instance = holder.instance
            self._refills.give(holder.rank, due, version, lambda: holder.is_alive and holder.instance == instance)
