"""What trainers processed and servers applied, recorded while a job runs, and the same work done in one process."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np

from controlplane.protocol.spec import JobSpec
from tests.workers.driver import Vector
from workers.server.arrivals import Arrivals
from workers.server.contribution import Contribution, Sum
from workers.trainer.computing import Computing
from workers.transport.client import ServerConnection
from workers.workloads.catalogue import load_workload
from workers.workloads.shape import Samples

Update = tuple[int, int]
"""Of a rank, in an iteration."""


@dataclass
class Recording:
    """Of one job with blocks of different sizes, by which they are distinguished."""

    samples: dict[Update, Samples] = field(default_factory=dict)
    """What was really processed."""
    pulled: dict[Update, Vector] = field(default_factory=dict)
    summed: dict[int, list[Update]] = field(default_factory=lambda: defaultdict(list))
    """What servers added to a sum, in that order, by the block's elements."""
    steps: dict[int, list[list[Update]]] = field(default_factory=lambda: defaultdict(list))
    """What servers applied asynchronously, each step with its updates, by the block's elements."""


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record everything that happens within."""
    recording = Recording()
    run, pull, add, apply = Computing.run, ServerConnection.pull, Sum.add, Arrivals._apply

    def recording_run(self: Computing, iteration: int, task: Any) -> Any:
        update, overran = run(self, iteration, task)
        recording.samples[self._link.rank, iteration] = task.samples[: update.samples].copy()  # type: ignore[attr-defined]
        return update, overran

    def recording_pull(self: ServerConnection, wanted: dict[int, memoryview], stamp: Any, *more: Any) -> Any:
        memory = dict(wanted)
        outcome = pull(self, wanted, stamp, *more)
        values = [np.frombuffer(memory[block], dtype=np.float32).copy() for block in sorted(memory)]
        recording.pulled[self._rank, stamp.iteration] = np.concatenate(values)
        return outcome

    def recording_add(self: Sum, contribution: Contribution) -> memoryview | None:
        recording.summed[len(contribution.total) // 4].append((contribution.peer.rank, contribution.iteration))
        return add(self, contribution)

    def recording_apply(self: Arrivals, contributions: list[Contribution]) -> None:
        if contributions:
            recording.steps[len(contributions[0].total) // 4].append(
                [(c.peer.rank, c.iteration) for c in contributions]
            )
        apply(self, contributions)

    with (
        patch.object(Computing, "run", recording_run),
        patch.object(ServerConnection, "pull", recording_pull),
        patch.object(Sum, "add", recording_add),
        patch.object(Arrivals, "_apply", recording_apply),
    ):
        yield recording


def synchronous_run(spec: JobSpec, iterations: Sequence[Sequence[Samples]]) -> Vector:
    """One model, one step of plain SGD along the mean gradient over all samples of each iteration."""
    workload = load_workload(spec.workload)
    replica = workload.replica()
    values = workload.init(spec.seed)
    for parts in iterations:
        values = values - spec.optimizer.lr * _mean_gradient(replica, values, np.concatenate(list(parts)))
    return values


def serial_run(spec: JobSpec, recording: Recording, scale: float) -> tuple[Vector, int]:
    """The recorded updates of each block one after another; the final values, and how many were stale.

    What a worker had pulled must be a state of this very run, and its gradient is computed anew there.
    """
    workload = load_workload(spec.workload)
    replica = workload.replica()
    counts = {update: len(samples) for update, samples in recording.samples.items()}
    sums = {
        update: _mean_gradient(replica, recording.pulled[update], samples) * counts[update]
        for update, samples in recording.samples.items()
    }
    initial, parts, stale = workload.init(spec.seed), [], 0
    ends = np.cumsum(workload.layout.sizes).tolist()
    for start, stop in itertools.pairwise([0, *ends]):
        states = [initial[start:stop]]
        for step in recording.steps[stop - start]:
            for update in step:
                distances = [float(np.abs(recording.pulled[update][start:stop] - state).max()) for state in states]
                nearest = int(np.argmin(distances))
                assert distances[nearest] < 1e-5, f"{update} pulled what never was, {distances[nearest]} from any state"
                stale += nearest < len(states) - 1
            total = sum(sums[update][start:stop] for update in step) / sum(counts[update] for update in step)
            states.append(states[-1] - spec.optimizer.lr * scale * len(step) * total)
        parts.append(states[-1])
    return np.concatenate(parts), stale


def _mean_gradient(replica: Any, values: Vector, samples: Samples) -> Vector:
    np.copyto(replica.parameters, values)
    replica.update(samples)
    gradient: Vector = replica.gradient / len(samples)
    return gradient
