"""Splits work that may not fit into a device's memory into pieces of the largest size that was found to fit."""

import contextlib
import ctypes
import logging
from collections.abc import Callable, Iterator

import torch

from workers.workloads.shape import Samples

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
RETURNED_BYTES, KEPT_BYTES = 128 * 1024, 32 * 1024 * 1024
"""The limits within which glibc adapts its threshold."""

log = logging.getLogger(__name__)


@contextlib.contextmanager
def returned() -> Iterator[None]:
    """Return memory that is allocated in this context to the system when it is freed.

    Otherwise the C library keeps a freed module's memory as a hole in the heap that gradients fill and never leave.
    Afterwards allocations larger than ``KEPT_BYTES`` are returned on free; smaller ones are kept for reuse, which is
    faster.
    """
    _set_threshold(RETURNED_BYTES)
    try:
        yield
    finally:
        _set_threshold(KEPT_BYTES)


def _set_threshold(size: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # a C library other than glibc
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, size)
        library.mallopt(M_TRIM_THRESHOLD, 2 * size)


def ceiling_of(replica: object) -> int | None:
    """The largest number of samples that was found to fit into a replica's memory; None: it never ran short."""
    ceiling: int | None = getattr(replica, "ceiling", None)
    return ceiling


class Pieces:
    """Remembers how many samples fit. ``release`` frees cached memory."""

    def __init__(self, release: Callable[[], None] = lambda: None) -> None:
        self.limit: int | None = None
        self._release = release

    def run(self, samples: Samples, begin: Callable[[], None], add: Callable[[Samples], float]) -> float:
        """The sum of ``add`` over pieces of ``samples``; if memory runs short, all is repeated in smaller pieces.

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
        """The pieces in which these samples are processed, if known."""
        size = self.limit or max(1, len(samples))
        return [samples[at : at + size] for at in range(0, len(samples), size)]
