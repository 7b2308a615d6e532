"""Makes the next exchange of words sooner where iterations have become much longer since it was agreed on.

In a fast loop it is up to 16 iterations ahead, and a stop, a pause or new shares would wait for all of them. Rank 0
names an earlier one in the store that the process group was made with, and the others look there once it may have:
their clocks began to run before rank 0's did, since its sum needed theirs. The exchange is then made behind one more
sum of gradients: that needs rank 0's, which come after its word, so all ranks know it by then. This holds only where
the CPU waits for that sum: not on a GPU, whose sums only order its streams, and not with a hook of the script's own.
"""

import itertools
import time
from typing import Any, Final

LATE_S: Final = 0.5
"""Rank 0 names an earlier exchange this long behind the last one."""

LOOKS_S: Final = 0.9 * LATE_S
"""The others look this long after it, which is earlier regardless of clock differences."""

_numbers = itertools.count()


class Sooner:
    """One rank's part; without a store, or without sums of gradients that are counted, nothing changes.

    Args:
        rank: this one.
        store: of the process group, the same at all ranks; None at all of them unless each waits for its sums.
    """

    def __init__(self, rank: int, store: Any) -> None:
        self._rank, self._store = rank, store
        self._prefix = "" if store is None else f"paceline/{next(_numbers)}"
        self._exchanges = 0
        self._since_s = float("inf")
        self._sums = 0
        self._behind: int | None = None
        """So many sums are made before the exchange that rank 0 has named."""

    def summed(self) -> None:
        """A sum of gradients over all ranks is complete, and the script has waited for it."""
        self._sums += 1

    def begin(self) -> None:
        """An iteration begins that has an exchange: its gradients are yet to be computed."""
        if self._rank:
            self._since_s = time.monotonic()

    def end(self) -> None:
        """The exchange was read."""
        self._exchanges, self._behind = self._exchanges + 1, None
        if not self._rank:
            self._since_s = time.monotonic()

    def is_due(self) -> bool:
        """Whether the iteration that begins now has one, though none was planned; the same at each rank.

        Raises:
            RuntimeError: if the store does not answer: the ranks' next sums could then be different ones.
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
    """That of the default process group; None: it has none."""
    from torch.distributed import distributed_c10d

    try:
        return distributed_c10d._get_default_store()
    except (AttributeError, ValueError):
        return None
