"""A ring of node ids with fingers, as in Chord: lookups take a logarithmic number of hops, and no node knows all
others.

A node knows the next ``SUCCESSORS`` nodes, and for each power of two the node that owns the key at that distance (its
fingers). It estimates the number of nodes from the distance that its successors span: ids are random, so their density
is the number of nodes. The owner of a random key is a random node, but a node after a large gap owns more keys;
continuing to a random one of the owner's successors makes the choice nearly uniform.
"""

import random
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

BITS: Final = 64
SPACE: Final = 1 << BITS
SUCCESSORS: Final = 16
"""How many successors a node knows."""


class Found(NamedTuple):
    """The node that a lookup reached, and the number of hops."""

    node: int
    hops: int


class Ring:
    """Nodes are numbered from 0.

    Args:
        ids: the id of each node; all are different.
    """

    def __init__(self, ids: Sequence[int]) -> None:
        order = sorted(range(len(ids)), key=ids.__getitem__)
        self._ids = [ids[node] for node in order]
        self._node = order
        self._place = {node: place for place, node in enumerate(order)}

    @classmethod
    def drawn(cls, nodes: int, seed: int) -> "Ring":
        """A ring with random ids."""
        chance, ids = random.Random(seed), dict[int, None]()
        while len(ids) < nodes:
            ids[chance.getrandbits(BITS)] = None
        return cls(list(ids))

    def __len__(self) -> int:
        return len(self._ids)

    def owner(self, key: int) -> int:
        """The node that owns ``key``: the first at or after it."""
        return self._node[self._owner_place(key)]

    def lookup(self, node: int, key: int) -> Found:
        """Find the owner of ``key`` from ``node``: each hop uses the farthest finger that does not pass the key."""
        ids, hops, at = self._ids, 0, self._place[node]
        while True:
            ahead = (key - ids[at]) % SPACE
            if not ahead:
                return Found(self._node[at], hops)
            following = (at + 1) % len(ids)
            if ahead <= (ids[following] - ids[at]) % SPACE or len(ids) == 1:
                return Found(self._node[following], hops + (following != at))
            at, hops = self._finger_before(at, ahead), hops + 1

    def random_peer(self, node: int, chance: random.Random, *, even: bool = True) -> Found:
        """A node by a random key; ``even``: one of its owner's successors, with equal probability."""
        found = self.lookup(node, chance.randrange(SPACE))
        if not even:
            return found
        steps = chance.randrange(min(SUCCESSORS, len(self._ids)))
        place = (self._place[found.node] + steps) % len(self._ids)
        return Found(self._node[place], found.hops + (steps > 0))

    def estimate(self, node: int, successors: int = SUCCESSORS) -> float:
        """Estimate the number of nodes from the density of ids after ``node``.

        The gaps are nearly exponential, so (k - 1) / sum is an unbiased estimate of n from k gaps, with a relative
        deviation of 1 / sqrt(k - 2). If the successors go all the way round the ring, the number is exact.
        """
        known, at = len(self._ids), self._place[node]
        if known <= successors:
            return float(known)
        span = (self._ids[(at + successors) % known] - self._ids[at]) % SPACE
        return (successors - 1) * SPACE / span

    def owned(self, node: int) -> float:
        """The fraction of all keys that the node owns."""
        at = self._place[node]
        return ((self._ids[at] - self._ids[at - 1]) % SPACE or SPACE) / SPACE

    def _owner_place(self, key: int) -> int:
        place = bisect_left(self._ids, key % SPACE)
        return place if place < len(self._ids) else 0

    def _finger_before(self, at: int, ahead: int) -> int:
        """The farthest finger that does not pass the key; the next node is always a candidate."""
        own = self._ids[at]
        for power in range(ahead.bit_length() - 1, -1, -1):
            finger = self._owner_place(own + (1 << power))
            distance = (self._ids[finger] - own) % SPACE
            if 0 < distance < ahead:
                return finger
        return (at + 1) % len(self._ids)
