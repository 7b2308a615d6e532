"""What a worker exchanges with servers of limited bandwidth in an iteration: one way after the other, or both at once.

Both at once is while it computes, as if blocks were small: an iteration then takes as long as the longest of computing,
pulling, and pushing.
"""

from collections.abc import Callable, Mapping

from controlplane.protocol.messages import Exchanged
from controlplane.simulator.network import Network


class Exchange:
    """Of one worker, in the iteration that it is in."""

    __slots__ = ("_ended", "_network", "_now", "_number", "_pulled", "_pushed", "_rank", "_sizes", "_ways", "ended_s")

    def __init__(self, rank: int, network: Network, now: Callable[[], float], ended: Callable[[], None]) -> None:
        """``ended`` is called when both ways have."""
        self._rank, self._network, self._now, self._ended = rank, network, now, ended
        self._sizes: Mapping[int, int] = {}
        self._pulled: dict[int, float] = {}
        self._pushed: dict[int, float] = {}
        self._number = self._ways = 0
        self.ended_s = 0.0
        """When both ways of the latest had ended."""

    def pull(self, sizes: Mapping[int, int], iteration: int, done: Callable[[int], None], attempt: int) -> None:
        """From all servers, so many bytes each."""
        self._sizes = sizes
        self._pulled = self._network.transfer(self._rank, sizes, iteration, 1, done, attempt)

    def push(self, sizes: Mapping[int, int], iteration: int, done: Callable[[int], None], attempt: int) -> None:
        """To all servers."""
        self._sizes = sizes
        self._pushed = self._network.transfer(self._rank, sizes, iteration, 0, done, attempt)

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

    def _end(self, number: int) -> None:
        if number == self._number:
            self._ways -= 1
            self.ended_s = self._now()
            if not self._ways:
                self._ended()
