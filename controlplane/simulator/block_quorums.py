"""Which blocks of a version are complete, where servers close each block by itself, as live ones do in lockstep.

A worker that has pushed all of its update pulls the blocks that are complete, while others still push later ones: both
directions of a server's link are in use at a time.
"""

from collections.abc import Callable, Iterable

from controlplane.protocol.orders import Block
from controlplane.simulator.servers import Servers


class BlockQuorums:
    """Of the open iteration and later ones."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.blocks: dict[int, list[Block]] = {}
        """By server, in the order in which each worker exchanges them."""
        self._here: dict[tuple[int, int], set[int]] = {}
        """By iteration and block, the workers whose updates have arrived."""
        self._waiting: dict[tuple[int, int], list[Callable[[], None]]] = {}
        """By version and block."""

    def place(self, blocks: Iterable[Block]) -> None:
        """Exchanges that begin from now on are with these servers."""
        self.blocks = {}
        for block in blocks:
            self.blocks.setdefault(block.server, []).append(block)

    def arrive(self, rank: int, iteration: int, block: int) -> None:
        """A worker's update of one block is at its server."""
        self._here.setdefault((iteration, block), set()).add(rank)
        if self._is_complete(iteration + 1, block):
            for act in self._waiting.pop((iteration + 1, block), ()):
                act()

    def when_complete(self, version: int, block: int, act: Callable[[], None]) -> None:
        """Call that as soon as the block has that version."""
        if self._is_complete(version, block):
            act()
        else:
            self._waiting.setdefault((version, block), []).append(act)

    def reach(self, version: int) -> None:
        """All blocks have that version: also those for which fewer updates were needed."""
        self._here = {key: ranks for key, ranks in self._here.items() if key[0] >= version}
        for key in sorted(key for key in self._waiting if key[0] <= version):
            for act in self._waiting.pop(key):
                act()

    def _is_complete(self, version: int, block: int) -> bool:
        servers, iteration = self._servers, version - 1
        if servers.version >= version or servers.is_free(iteration):
            return True
        members = servers.members
        return servers.is_plain(iteration) and self._here.get((iteration, block), set()).issuperset(members)
