"""Work that may not fit into a device's memory at once: it is done in pieces, as large as were found to fit."""

import contextlib
import ctypes
import logging
from collections.abc import Callable

import torch

from workers.workloads.shape import Samples

log = logging.getLogger(__name__)


def give_back() -> None:
    """Have the C library return memory that was freed, where it can: else it keeps that of a whole module for later."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def ceiling_of(replica: object) -> int | None:
    """The most samples that a replica's memory was found to hold at once; None where it never ran short."""
    ceiling: int | None = getattr(replica, "ceiling", None)
    return ceiling


class Pieces:
    """Remembers how many samples fit at once. ``release`` gives back memory that is kept for nothing."""

    def __init__(self, release: Callable[[], None] = lambda: None) -> None:
        self.limit: int | None = None
        self._release = release

    def run(self, samples: Samples, begin: Callable[[], None], add: Callable[[Samples], float]) -> float:
        """The sum of ``add`` over pieces of ``samples``; where memory runs short all begins anew, in smaller ones.

        Raises:
            torch.OutOfMemoryError: if a single sample does not fit.
        """
        while True:
            try:
                begin()
                return sum(add(piece) for piece in self.cut(samples))
            except torch.OutOfMemoryError:
                tried = min(len(samples), self.limit or len(samples))
                if tried <= 1:
                    raise
                self.limit = tried // 2
            log.warning("%d samples at once do not fit into memory; going on with %d", tried, self.limit)
            self._release()

    def cut(self, samples: Samples) -> list[Samples]:
        """The pieces in which these are worked on, as far as is known."""
        size = self.limit or max(1, len(samples))
        return [samples[at : at + size] for at in range(0, len(samples), size)]
