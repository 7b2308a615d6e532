"""A worker's exchanges with servers of limited bandwidth in an iteration: push and pull in sequence, or both in
parallel.

In parallel means while it computes, as with small blocks: an iteration then takes as long as the longest of computing,
pulling and pushing. In sequence, the update is transferred as a whole or block by block: then each server receives and
sends one block after another, and a block is pulled as soon as it is complete.
"""

from collections.abc import Callable, Mapping
from functools import partial

from controlplane.protocol.messages import Exchanged
from controlplane.protocol.orders import Block
from controlplane.simulator.block_quorums import BlockQuorums
from controlplane.simulator.network import Network


class Exchange:
    """The exchange of one worker in its present iteration."""

    __slots__ = (
        "_ended",
        "_network",
        "_now",
        "_number",
        "_pulled",
        "_pushed",
        "_quorums",
        "_rank",
        "_sizes",
        "_ways",
        "ended_s",
    )

    def __init__(
        self,
        rank: int,
        network: Network,
        now: Callable[[], float],
        ended: Callable[[], None],
        quorums: BlockQuorums | None = None,
    ) -> None:
        """``ended`` is called when push and pull have ended. ``quorums``: of blocks, if blocks are exchanged
        separately.
        """
        self._rank, self._network, self._now, self._ended = rank, network, now, ended
        self._quorums = quorums
        self._sizes: Mapping[int, int] = {}
        self._pulled: dict[int, float] = {}
        self._pushed: dict[int, float] = {}
        self._number = self._ways = 0
        self.ended_s = 0.0
        """When push and pull of the latest exchange had ended."""

    @property
    def pulled_s(self) -> float:
        """How long the latest pull took, block by block, without the time that blocks were held back."""
        return max(self._pulled.values(), default=0.0)

    def pull(self, sizes: Mapping[int, int], iteration: int, done: Callable[[int], None], attempt: int) -> None:
        """Pull ``sizes`` bytes from the servers."""
        self._sizes = sizes
        self._pulled = self._network.transfer(self._rank, sizes, iteration, 1, done, attempt)

    def push(self, sizes: Mapping[int, int], iteration: int, done: Callable[[int], None], attempt: int) -> None:
        """Push ``sizes`` bytes to the servers; block by block, each server receives one block after another."""
        self._sizes = sizes
        if (quorums := self._quorums) is None:
            self._pushed = self._network.transfer(self._rank, sizes, iteration, 0, done, attempt)
            return

        def arrived(block: Block) -> None:
            quorums.arrive(self._rank, iteration, block.index)

        self._pushed = self._stream(quorums, iteration, 0, lambda _, begin: begin(), arrived, partial(done, attempt))

    def pull_blocks(self, iteration: int, done: Callable[[int], None], attempt: int) -> bool:
        """Pull block by block, each as soon as it is complete; False if servers close an iteration as a whole."""
        if (quorums := self._quorums) is None:
            return False

        def may_begin(block: Block, begin: Callable[[], None]) -> None:
            quorums.when_complete(iteration, block.index, begin)

        self._pulled = self._stream(quorums, iteration, 1, may_begin, lambda _: None, partial(done, attempt))
        return True

    def begin(self, sizes: Mapping[int, int], iteration: int) -> None:
        """Push and pull in parallel; an earlier exchange in progress is dropped."""
        self.drop()
        self._ways = 2
        self.pull(sizes, iteration, self._end, self._number)
        self.push(sizes, iteration, self._end, self._number)

    def drop(self) -> None:
        """Drop the exchange: the worker has a new process."""
        self._number += 1
        self._ways = 0

    @property
    def is_under_way(self) -> bool:
        """Whether push or pull has not ended."""
        return self._ways > 0

    def measured(self) -> list[Exchanged]:
        """Measured exchanges with servers that it both pulled from and pushed to."""
        return [
            Exchanged(server=server, bytes=size, push_s=self._pushed[server], pull_s=self._pulled[server])
            for server, size in sorted(self._sizes.items())
            if server in self._pulled and server in self._pushed
        ]

    def _stream(
        self,
        quorums: BlockQuorums,
        iteration: int,
        direction: int,
        may_begin: Callable[[Block, Callable[[], None]], None],
        arrived: Callable[[Block], None],
        done: Callable[[], None],
    ) -> dict[int, float]:
        """Transfer the blocks of each server; at the end, the time per server is available."""
        blocks = quorums.blocks
        self._sizes = {server: sum(block.bytes for block in of_server) for server, of_server in blocks.items()}
        took_s = dict.fromkeys(blocks, 0.0)
        left = len(blocks) + 1
        network, now = self._network, self._now

        def one() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        def next_of(server: int, at: int) -> None:
            if at == len(blocks[server]):
                took_s[server] += network.latency_s(server)
                network.after_latency(server, one)
            else:
                may_begin(blocks[server][at], partial(begin, server, at))

        def begin(server: int, at: int) -> None:
            size = blocks[server][at].bytes
            network.send(self._rank, server, size, iteration, direction, partial(end, server, at, now()))

        def end(server: int, at: int, began_s: float) -> None:
            took_s[server] += now() - began_s
            arrived(blocks[server][at])
            next_of(server, at + 1)

        network.over_link(self._rank, self._sizes, iteration, one)
        for server in blocks:
            next_of(server, 0)
        return took_s

    def _end(self, number: int) -> None:
        if number == self._number:
            self._ways -= 1
            self.ended_s = self._now()
            if not self._ways:
                self._ended()
