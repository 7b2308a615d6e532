"""The updates that workers push, and their sums."""

from dataclasses import dataclass, replace

import torch

from controlplane.protocol.training import EQUAL, Aggregation
from workers.transport.handshake import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """The sum of one worker's gradients over one block, and its number of samples."""

    term: tuple[int, int]
    peer: Peer
    iteration: int
    samples: int
    total: memoryview
    """The sum as writable bytes of float32; the block owns its memory once it counts."""


def weighed(contribution: Contribution, aggregation: Aggregation) -> Contribution:
    """The vector to add: with equal weights the mean, written in place; otherwise the sum."""
    if aggregation not in EQUAL or contribution.samples <= 1:
        return contribution
    torch.frombuffer(contribution.total, dtype=torch.float32).div_(contribution.samples)
    return replace(contribution, samples=1)


class Sum:
    """Contributions that are applied together; owns the memory of the first one."""

    def __init__(self) -> None:
        self.samples = 0
        self.count = 0
        """Number of contributions."""
        self._total = memoryview(b"")

    @property
    def total(self) -> torch.Tensor:
        """The sum; the caller may write to it."""
        return torch.frombuffer(self._total, dtype=torch.float32)

    def add(self, contribution: Contribution) -> memoryview | None:
        """Add ``contribution``. Return its memory if it can be reused, None if it is kept."""
        self.samples += contribution.samples
        self.count += 1
        if self.count == 1:
            self._total = contribution.total
            return None
        self.total.add_(torch.frombuffer(contribution.total, dtype=torch.float32))
        return contribution.total

    def take_over(self, total: memoryview, *, samples: int, count: int) -> None:
        """Replace the content with that of another sum, and own its memory."""
        self._total, self.samples, self.count = total, samples, count

    def clear(self) -> memoryview:
        """Clear the sum. Return the memory that it owned, if any."""
        free, self._total = self._total, memoryview(b"")
        self.samples = self.count = 0
        return free
