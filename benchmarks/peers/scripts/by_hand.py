"""DistributedDataParallel with uneven batches that a user has computed: ``by_hand.py 93,93,47,23``.

Each pass uses the permutation that Paceline uses for this seed, so that both process the same samples in the same
order.
"""

import sys
from collections.abc import Iterator
from itertools import accumulate, count

import numpy as np
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler

from benchmarks.peers.machine import emulate, score
from benchmarks.peers.task import EPOCHS, SCORE_EVERY, SEED, digits, network, sgd


class Shares(Sampler[list[int]]):
    """The rank's part of every global batch; the smaller last one of a pass is divided in the same proportions."""

    def __init__(self, samples: int, shares: list[int], rank: int) -> None:
        self._samples, self._rank, self._total = samples, rank, sum(shares)
        self._bounds = [0, *accumulate(shares)]
        self._epochs = count()

    def __iter__(self) -> Iterator[list[int]]:
        order = np.random.default_rng([SEED, next(self._epochs)]).permutation(self._samples)
        for first in range(0, self._samples, self._total):
            batch = order[first : first + self._total]
            low, high = (round(len(batch) * bound / self._total) for bound in self._bounds[self._rank : self._rank + 2])
            yield batch[low:high].tolist()


def main() -> None:
    """Train until the launcher ends it."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    emulate(rank)
    shares = [int(share) for share in sys.argv[1].split(",")]
    train, test = digits()
    loader = DataLoader(train, batch_sampler=Shares(len(train), shares, rank))
    model = DistributedDataParallel(network())
    optimizer, total = sgd(model), nn.CrossEntropyLoss(reduction="sum")
    iterations, full = 0, -(-len(train) // sum(shares))
    for _ in range(EPOCHS):
        for number, (images, labels) in enumerate(loader, start=1):
            batch = sum(shares) if number < full else len(train) - (full - 1) * sum(shares)
            (total(model(images), labels) * world / batch).backward()  # DDP divides by the number of ranks
            optimizer.step()
            optimizer.zero_grad()
            iterations += 1
            if rank == 0 and iterations % SCORE_EVERY == 0:
                score(model.module, test)


if __name__ == "__main__":
    main()
