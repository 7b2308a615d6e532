"""Which samples lie at which positions: a seeded permutation per pass over the data, the same at every worker.

Position ``p`` is element ``p mod N`` of the permutation of pass ``p div N``. Orders hand out ranges of positions, so
any division of an iteration over the workers takes the same samples, and a redone iteration takes them again.
"""

from functools import lru_cache

import numpy as np

from controlplane.protocol.orders import Orders
from workers.workloads.shape import Samples


class PermutationSampler:
    """The endless sequence of samples of one job."""

    def __init__(self, *, seed: int, sample_count: int) -> None:
        self.sample_count = sample_count
        self._seed = seed
        self._pass = lru_cache(maxsize=4)(self._permutation)

    def samples(self, position: int, count: int) -> Samples:
        """Indices of the ``count`` samples from ``position`` on; a range may cross passes."""
        parts = [np.empty(0, dtype=np.int64)]
        end = position + count
        while position < end:
            number, begin = divmod(position, self.sample_count)
            part = self._pass(number)[begin : begin + end - position]
            parts.append(part)
            position += len(part)
        return np.concatenate(parts)

    def _permutation(self, number: int) -> Samples:
        return np.random.default_rng([self._seed, number]).permutation(self.sample_count)


def first_position(orders: Orders, iteration: int) -> int:
    """Where this worker's samples of ``iteration`` begin."""
    return orders.origin_position + (iteration - orders.origin_iteration) * orders.global_batch + orders.offset
