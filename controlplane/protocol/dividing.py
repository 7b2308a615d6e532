"""Maps the samples of a pass to iterations and ranks of an attached job, for any shares. Pure.

A pass is a permutation of the dataset. Iteration ``k`` is a range of it with the length of the global batch; the last
one is the rest. Each rank's range has the length of its share and follows those of lower ranks.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec


class Span(NamedTuple):
    """Positions ``[start, start + size)`` of a pass."""

    start: int
    size: int


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """One pass over the data, or the rest of one after a restart."""

    number: int
    first: int
    """Its first iteration, as the job counts them."""
    samples: int
    """Of the whole data set."""
    batch: int
    """Samples of a full iteration, over all ranks."""
    begin: int = 0
    """The position that its first iteration begins at."""
    drop_last: bool = False
    """Whether an incomplete last iteration is dropped."""

    @property
    def iterations(self) -> int:
        """How many there are, the same for each rank."""
        left = max(0, self.samples - self.begin)
        return left // self.batch if self.drop_last else -(-left // self.batch)

    def span(self, iteration: int) -> Span:
        """The range of one iteration, over all ranks.

        Raises:
            IndexError: if it is not in this pass.
        """
        place = iteration - self.first
        if not 0 <= place < self.iterations:
            last = self.first + self.iterations - 1
            raise IndexError(f"iteration {iteration} is not of pass {self.number}: those are {self.first} to {last}")
        start = self.begin + place * self.batch
        return Span(start, min(self.batch, self.samples - start))


def divide(weights: Sequence[int], size: int, multiple: int = 1) -> list[int]:
    """``size`` samples among ranks in proportion to their ``weights``, in multiples; the remainder goes to the largest.

    Weights that already are such a division are returned as they are. By largest remainders, ties to the lower rank.
    """
    if sum(weights) == size and not any(weight % multiple for weight in weights):
        return list(weights)
    weights = weights if any(weights) else [1] * len(weights)
    units, rest = divmod(size, multiple)
    total = sum(weights)
    shares = [units * weight // total for weight in weights]
    order = sorted(range(len(weights)), key=lambda rank: (-(units * weights[rank] % total), rank))
    for rank in order[: units - sum(shares)]:
        shares[rank] += 1
    shares = [share * multiple for share in shares]
    shares[shares.index(max(shares))] += rest
    return shares


def within(shares: Sequence[int], ceilings: Sequence[int], multiple: int = 1) -> list[int]:
    """The same number of samples with no rank above its ceiling (0: it has none), if that is possible.

    Samples that do not fit stay with the ranks above their ceilings, in proportion: the global batch is constant.
    """
    if not any(ceilings):
        return list(shares)
    most = [ceiling // multiple * multiple if ceiling else sum(shares) for ceiling in ceilings]
    fitted = [min(share, bound) for share, bound in zip(shares, most, strict=True)]
    while left := sum(shares) - sum(fitted):
        room = [bound - share for share, bound in zip(fitted, most, strict=True)]
        open_ranks = [rank for rank, free in enumerate(room) if free > 0]
        if not open_ranks:
            over = [max(0, share - bound) for share, bound in zip(shares, most, strict=True)]
            return [a + b for a, b in zip(fitted, divide(over, left, multiple), strict=True)]
        extra = divide([max(1, shares[rank]) for rank in open_ranks], left, multiple)
        for rank, more in zip(open_ranks, extra, strict=True):
            fitted[rank] += min(more, room[rank])
    return fitted


def parts(span: Span, count: int) -> list[Span]:
    """A rank's samples of one iteration in ``count`` micro-batches that differ by one sample at most."""
    size, longer = divmod(span.size, count)
    sizes = [size + (place < longer) for place in range(count)]
    return [Span(span.start + before, each) for before, each in zip(_before(sizes), sizes, strict=True)]


def spans(span: Span, shares: Sequence[int]) -> list[Span]:
    """Each rank's samples of an iteration, by rank."""
    return [Span(span.start + before, share) for before, share in zip(_before(shares), shares, strict=True)]


def _before(sizes: Sequence[int]) -> list[int]:
    return [0, *accumulate(sizes)][:-1]
