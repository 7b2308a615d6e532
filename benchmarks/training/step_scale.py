"""How to scale the step of an update on arrival: which rule is closest to BSP at equal samples, by optimizer.

Softmax regression on digits. Workers of uneven speed pull, compute and push as under ``asp``, in the order in which
they would finish; the servers' code applies the updates in that order: each as an n-th of a step at an n-th of the rate
(mean), n of them as one step along their mean (average), or each as a whole step (paper). BSP makes one step along the
mean of the n gradients at the same values. All process the same number of samples.

    manage.py bench step-scale [--workers 4] [--iterations 60] [--seeds 3]
"""

import argparse
import heapq
import sys
from collections.abc import Iterator, Sequence
from statistics import mean

import numpy as np
import torch

from benchmarks.tables import say
from controlplane.protocol.spec import Workload
from controlplane.protocol.training import Optimizer
from workers.server.arrivals import Arrivals
from workers.server.contribution import Contribution
from workers.server.quorum import Roster
from workers.server.values import Values
from workers.trainer.sampler import PermutationSampler
from workers.transport.handshake import Peer
from workers.workloads.catalogue import load_workload
from workers.workloads.shape import Score

BATCH = 16
OPTIMIZERS = {
    "sgd": Optimizer(lr=0.5),
    "sgd, momentum 0.9": Optimizer(lr=0.05, options={"momentum": 0.9}),
    "sgd, nesterov 0.9": Optimizer(lr=0.05, options={"momentum": 0.9, "nesterov": True}),
    "asgd": Optimizer(name="asgd", lr=0.5),
    "adam": Optimizer(name="adam", lr=0.01),
    "adamw": Optimizer(name="adamw", lr=0.01),
    "nadam": Optimizer(name="nadam", lr=0.01),
    "radam": Optimizer(name="radam", lr=0.01),
    "adamax": Optimizer(name="adamax", lr=0.01),
    "rmsprop": Optimizer(name="rmsprop", lr=0.01),
    "adagrad": Optimizer(name="adagrad", lr=0.05),
    "adadelta": Optimizer(name="adadelta", lr=1.0),
    "rprop": Optimizer(name="rprop", lr=0.001),
}
RULES = ("mean", "average", "paper")


class Run:
    """One job in one process."""

    def __init__(self, optimizer: Optimizer, workers: int, seed: int) -> None:
        self.workload = load_workload(Workload(name="softmax-regression"))
        self.replica = self.workload.replica()
        self.sampler = PermutationSampler(seed=seed, sample_count=self.workload.sample_count)
        self.position, self.workers, self.seed = 0, workers, seed
        self.values = Values(
            self.workload.init(seed), lambda values, start: self.workload.rule(values, optimizer, start=start)
        )

    def gradient(self, values: np.ndarray) -> np.ndarray:
        """The sum over the next batch, at these values."""
        np.copyto(self.replica.parameters, values)
        self.replica.update(self.sampler.samples(self.position, BATCH))
        self.position += BATCH
        return self.replica.gradient.copy()

    def now(self) -> np.ndarray:
        """A copy of the values."""
        return self.values.tensor.numpy().copy()

    def score(self) -> Score:
        """On the held-out split."""
        np.copyto(self.replica.parameters, self.now())
        return self.replica.evaluate()

    def synchronous(self, iterations: int) -> Score:
        """BSP."""
        everybody = [Peer(rank, f"w{rank}") for rank in range(self.workers)]
        roster = Roster(incarnation=0, generation=1, members=dict.fromkeys(everybody, 0), apply="arrival")
        for iteration in range(iterations):
            values = self.now()
            arrivals = Arrivals(self.values, roster, seen={}, iteration=iteration)
            total = sum(self.gradient(values) for _ in everybody)
            arrivals.take(_contribution(everybody[0], iteration, np.asarray(total, dtype=np.float32), self.workers))
        return self.score()

    def asynchronous(self, iterations: int, rule: str) -> Score:
        """ASP under one of the rules."""
        scale, gather = {"mean": (1 / self.workers, 1), "average": (1.0, self.workers), "paper": (1.0, 1)}[rule]
        peers = [Peer(rank, f"w{rank}") for rank in range(self.workers)]
        members = dict.fromkeys(peers, 0)
        roster = Roster(incarnation=0, generation=1, members=members, apply="arrival", scale=scale, gather=gather)
        arrivals = Arrivals(self.values, roster, seen={}, iteration=0)
        pulled = [self.now() for _ in peers]
        done = [0] * self.workers
        for rank in self._order(iterations * self.workers):
            update = self.gradient(pulled[rank])
            arrivals.take(_contribution(peers[rank], done[rank], update))
            done[rank] += 1
            pulled[rank] = self.now()
        return self.score()

    def _order(self, updates: int) -> Iterator[int]:
        """Which worker finishes next: speeds differ by up to 3, and vary."""
        chance = np.random.default_rng([self.seed, 5])
        usual = np.linspace(1.0, 3.0, self.workers)
        due = [(usual[rank] * chance.lognormal(0.0, 0.1), rank) for rank in range(self.workers)]
        heapq.heapify(due)
        for _ in range(updates):
            at, rank = heapq.heappop(due)
            yield rank
            heapq.heappush(due, (at + usual[rank] * chance.lognormal(0.0, 0.1), rank))


def _contribution(peer: Peer, iteration: int, total: np.ndarray, batches: int = 1) -> Contribution:
    memory = total.data.cast("B")
    return Contribution(term=(0, 1), peer=peer, iteration=iteration, samples=BATCH * batches, total=memory)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    say(f"{asked.workers} workers, {asked.iterations} iterations of {asked.workers * BATCH} samples: held-out loss")
    say(f"{'optimizer':20} {'BSP':>7}" + "".join(f"{rule:>9}" for rule in RULES))
    for name, optimizer in OPTIMIZERS.items():
        runs = [Run(optimizer, asked.workers, seed).synchronous(asked.iterations).loss for seed in range(asked.seeds)]
        row = f"{name:20} {mean(runs):7.3f}"
        for rule in RULES:
            found = [
                Run(optimizer, asked.workers, seed).asynchronous(asked.iterations, rule).loss
                for seed in range(asked.seeds)
            ]
            row += f"{mean(found):9.3f}"
        say(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
