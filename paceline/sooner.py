"""Moves the next status exchange to an earlier iteration if iterations have become much longer since it was planned.

In a fast loop the exchange is planned up to 16 iterations ahead, and a stop, a pause or new shares would be delayed by
all of them. Rank 0 writes an earlier iteration to the process group's store, and the others read the store once it may
have done so: their clocks started before rank 0's did, since its sum needed theirs. The exchange is then made after one
more sum of gradients. That sum needs rank 0's gradients, which follow its write, so all ranks know of it by then. This
holds only if the CPU waits for that sum: not on a GPU, where sums only order the streams, and not with the script's own
communication hook.
"""

import itertools
import time
from typing import Any, Final

LATE_S: Final = 0.5
"""Rank 0 writes an earlier exchange this long after the last one."""

LOOKS_S: Final = 0.9 * LATE_S
"""The others read the store this long after it: earlier than rank 0's write becomes due, despite differences between
clocks.
"""

_numbers = itertools.count()


class Sooner:
    """One rank's part. Without a store, or without counted sums of gradients, nothing changes.

    Args:
        rank: this rank.
        store: of the process group, the same on all ranks; None on all of them unless each waits for its sums.
    """

    def __init__(self, rank: int, store: Any) -> None:
        self._rank, self._store = rank, store
        self._prefix = "" if store is None else f"paceline/{next(_numbers)}"
        self._exchanges = 0
        self._since_s = float("inf")
        self._sums = 0
        self._behind: int | None = None
        """Number of sums before the exchange that rank 0 has requested."""

    def summed(self) -> None:
        """A sum of gradients over all ranks is complete, and the script has waited for it."""
        self._sums += 1

    def begin(self) -> None:
        """An iteration that has an exchange begins: its gradients are not computed yet."""
        if self._rank:
            self._since_s = time.monotonic()

    def end(self) -> None:
        """The exchange was read."""
        self._exchanges, self._behind = self._exchanges + 1, None
        if not self._rank:
            self._since_s = time.monotonic()

    def is_due(self) -> bool:
        """Whether the iteration that begins now has an exchange although none was planned; the same on each rank.

        Raises:
            RuntimeError: if the store does not respond: the ranks' next sums could then differ.
        """
        if self._behind is None and self._store is not None:
            late_s = time.monotonic() - self._since_s
            if late_s > (LOOKS_S if self._rank else LATE_S):
                self._behind = self._named()
        return self._behind is not None and self._sums >= self._behind

    def _named(self) -> int | None:
        key = f"{self._prefix}/{self._exchanges}"
        try:
            if not self._rank:
                return int(self._store.compare_set(key, "", str(self._sums + 1)))
            return int(self._store.get(key)) if self._store.check([key]) else None
        except Exception as error:
            raise RuntimeError(
                f"paceline: rank {self._rank} does not reach the store of the process group ({error!r}), so it cannot"
                " know whether the ranks exchange words now, and its sums could mix with others: start all ranks"
                " again, and keep the process that hosts the store (rank 0, or torchrun's agent there) running"
            ) from error


def store_of_group() -> Any:
    """The store of the default process group; None: it has none."""
    from torch.distributed import distributed_c10d

    try:
        return distributed_c10d._get_default_store()
    except (AttributeError, ValueError):
        return None
