"""Work that may not fit into a device's memory at once: it is done in pieces, as large as were found to fit."""

import contextlib
import ctypes
import logging
from collections.abc import Callable, Iterator

import torch

from workers.workloads.shape import Samples

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
RETURNED_BYTES, KEPT_BYTES = 128 * 1024, 32 * 1024 * 1024
"""The bounds between which glibc itself moves its threshold."""

log = logging.getLogger(__name__)


@contextlib.contextmanager
def returned() -> Iterator[None]:
    """Have what is allocated in this context returned to the system when it is freed.

    The C library would keep a module's tensors, once freed, as a hole that gradients fill and never leave again. After
    it larger ones than ``KEPT_BYTES`` are returned, and smaller ones are kept to be used again, which is faster.
    """
    _set_threshold(RETURNED_BYTES)
    try:
        yield
    finally:
        _set_threshold(KEPT_BYTES)


def _set_threshold(size: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, size)
        library.mallopt(M_TRIM_THRESHOLD, 2 * size)


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
        """The sum of ``add`` over pieces of ``samples``; where memory runs short all restarts, in smaller ones.

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
            log.warning("%d samples at once do not fit into memory; continuing with %d", tried, self.limit)
            self._release()

    def cut(self, samples: Samples) -> list[Samples]:
        """The pieces in which these are processed, where known."""
        size = self.limit or max(1, len(samples))
        return [samples[at : at + size] for at in range(0, len(samples), size)]
