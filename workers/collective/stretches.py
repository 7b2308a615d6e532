"""A vector that is added up in stretches while its end is still being computed: how it is cut, and the sums under way.

Every member of a group begins the same sums in the same order, from the back of the vector to its front: gradients
become final in about that order. The front goes last, whatever else is done early, so no sum of a whole vector is
complete before every member has said how many samples its part stands for.
"""

from collections.abc import Sequence

import torch

from controlplane.protocol.orders import ELEMENT_BYTES
from workers.collective.group import Group, Pending

STRETCH_BYTES = 1024 * 1024
"""Least of a stretch but the front: smaller ones cost more to begin than they gain."""


def stretches(sizes: Sequence[int], *, least: int = STRETCH_BYTES // ELEMENT_BYTES) -> list[int]:
    """Where stretches begin, the last one first and the front, 0, at the end; in elements.

    They consist of whole tensors of ``sizes`` elements, and each but the front of ``least`` elements or more.
    """
    begins, at = [], sum(sizes)
    end = at
    for size in reversed(sizes):
        at -= size
        if end - at >= least and at:
            begins.append(at)
            end = at
    return [*begins, 0]


class Sums:
    """One vector on its way: sums are begun from the back to the front, and waited for together.

    Args:
        vector: what is summed in place.
        begins: as ``stretches`` gives them.
        timeout_s: of each sum.
    """

    def __init__(self, group: Group, vector: torch.Tensor, begins: Sequence[int], *, timeout_s: float) -> None:
        self._group, self._vector, self._timeout_s = group, vector, timeout_s
        self._left = list(begins)
        self._end = len(vector)
        self._pending: list[Pending] = []

    def next_before(self, final_from: int) -> slice | None:
        """The next stretch, if it is whole from ``final_from`` on; never the front."""
        if len(self._left) > 1 and self._left[0] >= final_from:
            return slice(self._left[0], self._end)
        return None

    @property
    def rest(self) -> list[slice]:
        """What is not begun yet, in order."""
        ends = [self._end, *self._left]
        return [slice(begin, end) for begin, end in zip(self._left, ends, strict=False)]

    def begin(self, stretch: slice) -> None:
        """Begin the sum of the next stretch; its part of the vector is not to be touched until ``wait``.

        Raises:
            GroupBroken: if a member has failed.
        """
        self._left.pop(0)
        self._end = stretch.start
        self._pending.append(self._group.begin_sum(self._vector[stretch], timeout_s=self._timeout_s))

    def wait(self) -> None:
        """Until all sums that were begun are made.

        Raises:
            GroupBroken: if a member fails or is too late; the vector is undefined then.
        """
        for pending in self._pending:
            pending.wait()
