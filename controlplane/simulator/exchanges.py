"""What a worker exchanges with servers of limited bandwidth in an iteration: one way after the other, or both at once.

Both at once is while it computes, as if blocks were small: an iteration then takes as long as the longest of computing,
pulling, and pushing. One after the other is as a whole, or block by block: then each server gets and sends one after
another, and a block is pulled as soon as it is complete.
"""

from collections.abc import Callable, Mapping
from functools import partial

from controlplane.protocol.messages import Exchanged
from controlplane.protocol.orders import Block
from controlplane.simulator.block_quorums import BlockQuorums
from controlplane.simulator.network import Network


class Exchange:
    """Of one worker, in the iteration that it is in."""

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
        """``ended`` is called when both ways have. ``quorums``: of blocks, where each is exchanged by itself."""
        self._rank, self._network, self._now, self._ended = rank, network, now, ended
        self._quorums = quorums
        self._sizes: Mapping[int, int] = {}
        self._pulled: dict[int, float] = {}
        self._pushed: dict[int, float] = {}
        self._number = self._ways = 0
        self.ended_s = 0.0
        """When both ways of the latest had ended."""

    @property
    def pulled_s(self) -> float:
        """How long the latest pull took, block by block, without the time for which blocks were held back."""
        return max(self._pulled.values(), default=0.0)

    def pull(self, sizes: Mapping[int, int], iteration: int, done: Callable[[int], None], attempt: int) -> None:
        """From all servers, so many bytes each."""
        self._sizes = sizes
        self._pulled = self._network.transfer(self._rank, sizes, iteration, 1, done, attempt)

    def push(self, sizes: Mapping[int, int], iteration: int, done: Callable[[int], None], attempt: int) -> None:
        """To all servers; block by block, to each one block after another."""
        self._sizes = sizes
        if (quorums := self._quorums) is None:
            self._pushed = self._network.transfer(self._rank, sizes, iteration, 0, done, attempt)
            return

        def arrived(block: Block) -> None:
            quorums.arrive(self._rank, iteration, block.index)

        self._pushed = self._stream(quorums, iteration, 0, lambda _, begin: begin(), arrived, partial(done, attempt))

    def pull_blocks(self, iteration: int, done: Callable[[int], None], attempt: int) -> bool:
        """Block by block, as soon as each is complete; False: servers close an iteration as a whole."""
        if (quorums := self._quorums) is None:
            return False

        def may_begin(block: Block, begin: Callable[[], None]) -> None:
            quorums.when_complete(iteration, block.index, begin)

        self._pulled = self._stream(quorums, iteration, 1, may_begin, lambda _: None, partial(done, attempt))
        return True

    def begin(self, sizes: Mapping[int, int], iteration: int) -> None:
        """Both ways at once; an earlier one that is under way is forgotten."""
        self.drop()
        self._ways = 2
        self.pull(sizes, iteration, self._end, self._number)
        self.push(sizes, iteration, self._end, self._number)

    def drop(self) -> None:
        """Its process is a new one."""
        self._number += 1
        self._ways = 0

    @property
    def is_under_way(self) -> bool:
        """Whether one way of the two has not ended."""
        return self._ways > 0

    def measured(self) -> list[Exchanged]:
        """With servers that it both pulled from and pushed to."""
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
        """How long each server was sending, or receiving, is there at the end."""
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
