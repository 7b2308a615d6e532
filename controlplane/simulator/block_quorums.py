"""Which blocks of a version are complete if servers close each block separately, as live servers do in lockstep.

A worker that has pushed all of its update pulls complete blocks while others still push later ones, so both directions
of a server's link are in use at the same time.
"""

from collections.abc import Callable, Iterable

from controlplane.protocol.orders import Block
from controlplane.simulator.servers import Servers


class BlockQuorums:
    """Quorums of the blocks of the open iteration and later ones."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.blocks: dict[int, list[Block]] = {}
        """Blocks by server, in the order in which each worker exchanges them."""
        self._here: dict[tuple[int, int], set[int]] = {}
        """By iteration and block, the workers whose updates have arrived."""
        self._waiting: dict[tuple[int, int], list[Callable[[], None]]] = {}
        """Waiting callbacks by version and block."""

    def place(self, blocks: Iterable[Block]) -> None:
        """Use this placement for exchanges that begin from now on."""
        self.blocks = {}
        for block in blocks:
            self.blocks.setdefault(block.server, []).append(block)

    def arrive(self, rank: int, iteration: int, block: int) -> None:
        """A worker's update of one block has arrived at its server."""
        self._here.setdefault((iteration, block), set()).add(rank)
        if self._is_complete(iteration + 1, block):
            for act in self._waiting.pop((iteration + 1, block), ()):
                act()

    def when_complete(self, version: int, block: int, act: Callable[[], None]) -> None:
        """Call ``act`` as soon as the block has that version."""
        if self._is_complete(version, block):
            act()
        else:
            self._waiting.setdefault((version, block), []).append(act)

    def reach(self, version: int) -> None:
        """All blocks have that version, including those that needed fewer updates."""
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
