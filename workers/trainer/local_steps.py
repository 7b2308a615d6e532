"""Rounds of a federation (FedAvg): a client takes local steps from the pulled parameters, and pushes the difference.

The pushed value is a sum over samples like any update, so aggregation rules weight it like any other. The share of a
round sets how much a client computes. The rule decides how: LB-BSP scales the batch and keeps the number of steps and
the learning rate; the baselines scale one of these (LB-BSP section 3.5, Fig. 13).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from controlplane.protocol.optimizers import scaled
from controlplane.protocol.spec import JobSpec
from controlplane.protocol.training import Optimizer
from workers.workloads.memory import ceiling_of
from workers.workloads.rules import STEPS
from workers.workloads.shape import Prefetching, Replica, Samples, Score, Update, Vector, Workload, loading_s_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWork:
    """One client's work in one round."""

    steps: int
    optimizer: Optimizer


def local_work(spec: JobSpec, samples: int) -> LocalWork:
    """How a client of a federated job processes a round of this many samples.

    No step is empty under any rule; a round without samples has no steps.
    """
    assert spec.federated is not None
    usual, steps, optimizer = spec.batch_size, spec.federated.local_steps, spec.optimizer
    if spec.weighing == "fedavg-scaled-steps":
        steps = max(1, round(samples / usual))
    steps = min(steps, samples)
    if spec.weighing == "fedavg-scaled-rate" and steps:
        optimizer = scaled(optimizer, samples / (steps * usual))
    return LocalWork(steps=steps, optimizer=optimizer)


class Client:
    """``Replica`` of a client: its update is the start minus the result of its local steps, times its samples."""

    def __init__(self, workload: Workload, spec: JobSpec) -> None:
        self._workload, self._spec = workload, spec
        self._replica = workload.replica()
        self._rounds, self._edge = 0, workload.layout.edge
        self.parameters: Vector = self._replica.parameters
        self.gradient: Vector = np.zeros_like(self.parameters)

    def update(self, samples: Samples) -> Update:
        """One round from ``parameters``, which are restored at the end."""
        start, loss_sum = self.parameters.copy(), 0.0
        work = local_work(self._spec, len(samples))
        rule = self._workload.rule(torch.from_numpy(self.parameters), work.optimizer, start=0)
        rule.restore({STEPS: torch.tensor(self._rounds * work.steps)})
        for batch in self._steps(samples):
            loss_sum += self._replica.update(batch).loss_sum
            rule.apply(torch.from_numpy(self._replica.gradient), len(batch))
        self._rounds += 1
        np.subtract(start, self.parameters, out=self.gradient)
        self.gradient *= len(samples)
        self.gradient[self._edge :] *= -1.0  # buffers are not optimized: they move by the pushed change
        np.copyto(self.parameters, start)
        return Update(loss_sum=loss_sum, samples=len(samples))

    def prefetch(self, batches: Sequence[Samples]) -> None:
        """Prefetch the samples of the next rounds, step by step."""
        if isinstance(self._replica, Prefetching):
            self._replica.prefetch([step for batch in batches for step in self._steps(batch)])

    def _steps(self, samples: Samples) -> list[Samples]:
        steps = local_work(self._spec, len(samples)).steps
        return np.array_split(samples, steps) if steps else []

    @property
    def ceiling(self) -> int | None:
        """The largest round whose local steps each fit into memory."""
        steps = self._spec.federated.local_steps if self._spec.federated else 1
        ceiling = ceiling_of(self._replica)
        return None if ceiling is None else ceiling * steps

    @property
    def loading_s(self) -> float | None:
        """How long its local steps have waited for samples, if known."""
        return loading_s_of(self._replica)

    def evaluate(self) -> Score:
        """Evaluate ``parameters`` on the held-out split."""
        return self._replica.evaluate()


def make_replica(workload: Workload, spec: JobSpec) -> Replica:
    """Create the object that computes a worker's updates."""
    return workload.replica() if spec.federated is None else Client(workload, spec)
