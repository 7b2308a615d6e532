"""All-reduces a vector in chunks while its front is still being computed: where it is cut, and the sums in flight.

Every member of a group starts the same sums in the same order, from the back of the vector to its front: gradients
become final in about that order. The front is always last, so no sum of a whole vector is complete before every member
has reported how many samples its part has.
"""

from collections.abc import Collection, Sequence

import torch

from controlplane.protocol.orders import ELEMENT_BYTES
from workers.collective.group import Group, Pending

CHUNK_BYTES = 1024 * 1024
"""Minimum size of a chunk except the front: smaller ones cost more to start than they gain."""


def chunk_offsets(
    sizes: Sequence[int], *, least: int = CHUNK_BYTES // ELEMENT_BYTES, borders: Collection[int] = ()
) -> list[int]:
    """Offsets of the chunks in elements, from the last chunk to the front, which is 0.

    They consist of whole tensors of ``sizes`` elements, and each but the front of ``least`` elements or more; but no
    chunk lies across one of the ``borders``, which are begins of tensors.
    """
    begins, at = [], sum(sizes)
    end = at
    for size in reversed(sizes):
        at -= size
        if at and (end - at >= least or at in borders):
            begins.append(at)
            end = at
    return [*begins, 0]


class Sums:
    """One vector on its way: sums are begun from the back to the front, and waited for together.

    Args:
        vector: what is summed in place.
        begins: as ``chunks`` gives them.
        timeout_s: of each sum.
        rounded: the part that travels as bf16; no stretch may lie across its borders.
    """

    def __init__(
        self,
        group: Group,
        vector: torch.Tensor,
        begins: Sequence[int],
        *,
        timeout_s: float,
        rounded: slice | None = None,
    ) -> None:
        self._group, self._vector, self._timeout_s = group, vector, timeout_s
        self._rounded = rounded or slice(0, 0)
        self._left = list(begins)
        self._end = len(vector)
        self._pending: list[Pending] = []

    def next_before(self, final_from: int) -> slice | None:
        """The next chunk, if it is complete from ``final_from`` on; never the front."""
        if len(self._left) > 1 and self._left[0] >= final_from:
            return slice(self._left[0], self._end)
        return None

    @property
    def rest(self) -> list[slice]:
        """The chunks that are not started, in order."""
        ends = [self._end, *self._left]
        return [slice(begin, end) for begin, end in zip(self._left, ends, strict=False)]

    def begin(self, stretch: slice) -> None:
        """Start the sum of the next chunk; its part of the vector must not be touched until ``wait``.

        Raises:
            GroupBroken: if a member has failed.
        """
        is_rounded = self._rounded.start <= stretch.start < self._rounded.stop
        dtype = torch.bfloat16 if is_rounded else None
        self._pending.append(self._group.begin_sum(self._vector[stretch], timeout_s=self._timeout_s, dtype=dtype))
        self._left.pop(0)  # only now: where memory runs short, it is left to be begun
        self._end = stretch.start

    def wait(self) -> None:
        """Wait until all started sums are complete.

        Raises:
            GroupBroken: if a member fails or is too late; the vector is undefined then.
        """
        for pending in self._pending:
            pending.wait()
