"""The order of samples: a seeded permutation per pass, as in native jobs, the same on each rank."""

from functools import lru_cache
from typing import Any

from controlplane.protocol.dividing import Span


class Order:
    """The passes over one dataset. Two permutations are kept, at 4 bytes per sample.

    Args:
        shuffle: whether each pass has its own order; otherwise every pass has the data set's.
    """

    def __init__(self, *, seed: int, samples: int, shuffle: bool = True) -> None:
        self.seed, self.samples, self.shuffle = seed, samples, shuffle
        self._permutation = lru_cache(maxsize=2)(self._permute)

    def indices(self, number: int, span: Span) -> list[int]:
        """The indices of the samples at those positions of a pass."""
        if not self.shuffle:
            return list(range(span.start, span.start + span.size))
        found: list[int] = self._permutation(number)[span.start : span.start + span.size].tolist()
        return found

    def _permute(self, number: int) -> Any:
        import numpy as np

        kind = np.int32 if self.samples < 2**31 else np.int64
        return np.random.default_rng([self.seed, number]).permutation(self.samples).astype(kind)
