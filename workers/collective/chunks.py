"""All-reduces a vector in chunks while its front is still being computed: chunk boundaries, and the sums in flight.

Every member of a group starts the same sums in the same order, from the back of the vector to its front, which is about
the order in which gradients become final. The front is always last, so no sum of a whole vector completes before every
member has reported its number of samples.
"""

from collections.abc import Collection, Sequence

import torch

from controlplane.protocol.orders import ELEMENT_BYTES
from workers.collective.group import Group, Pending

CHUNK_BYTES = 1024 * 1024
"""Minimum size of a chunk except the front: the overhead of starting smaller ones exceeds the gain."""


def chunk_offsets(
    sizes: Sequence[int], *, least: int = CHUNK_BYTES // ELEMENT_BYTES, borders: Collection[int] = ()
) -> list[int]:
    """Offsets of the chunks in elements, from the last chunk to the front, which is 0.

    Chunks consist of whole tensors with the given ``sizes`` in elements. Each except the front has at least ``least``
    elements, and none crosses one of ``borders``, which are offsets of tensors.
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
    """The sums of one vector: started from the back to the front, and awaited together.

    Args:
        vector: is summed in place.
        begins: offsets from ``chunk_offsets``.
        timeout_s: of each sum.
        rounded: the part that is sent as bf16; no chunk may cross its borders.
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
        """The chunks that are not started yet, in order."""
        ends = [self._end, *self._left]
        return [slice(begin, end) for begin, end in zip(self._left, ends, strict=False)]

    def begin(self, stretch: slice) -> None:
        """Start the sum of the next chunk; its part of the vector must not be used until ``wait``.

        Raises:
            GroupBroken: if a member has failed.
        """
        is_rounded = self._rounded.start <= stretch.start < self._rounded.stop
        dtype = torch.bfloat16 if is_rounded else None
        self._pending.append(self._group.begin_sum(self._vector[stretch], timeout_s=self._timeout_s, dtype=dtype))
        self._left.pop(0)  # only now: if memory runs out, it can be started again
        self._end = stretch.start

    def wait(self) -> None:
        """Wait until all started sums are complete.

        Raises:
            GroupBroken: if a member fails or times out; the contents of the vector are then undefined.
        """
        for pending in self._pending:
            pending.wait()
