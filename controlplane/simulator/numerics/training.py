"""The parameters of a simulated job: versions that workers have pulled, gradients, and applied updates.

A gradient depends only on the version that a worker pulled and on its samples, not on when it is computed. When the
first gradient is needed, those of all workers in progress are computed at once.
"""

import math
from copy import deepcopy
from typing import Final, Protocol

import numpy as np

from controlplane.protocol.messages import Evaluation
from controlplane.protocol.orders import Piece
from controlplane.protocol.spec import JobSpec
from controlplane.simulator.numerics.data import build_problem, partition
from controlplane.simulator.numerics.optimizers import build_optimizer
from controlplane.simulator.numerics.problems import Array, Indices
from controlplane.simulator.numerics.rounds import local_changes, stacked, steps_and_batch
from controlplane.simulator.numerics.settings import Federated, Numerics

ORDERS: Final = 16
"""How many permutations are cached, for the passes in progress."""
_OVERFLOWS: Final = np.errstate(over="ignore", invalid="ignore")
"""A job that diverges ends with a loss of NaN; numpy's warnings are not needed."""


class Reporter(Protocol):
    """The worker that a gradient belongs to."""

    rank: int
    share: int
    position: int
    pieces: list[Piece]
    number: int

    @property
    def iteration(self) -> int:
        """The iteration that it is in."""

    def say(self, message: Evaluation) -> None:
        """Send a message."""


class Surroundings(Protocol):
    """The state of the run that training needs."""

    spec: JobSpec

    @property
    def now(self) -> float:
        """Virtual time."""

    def target_reached(self) -> None:
        """An evaluation has reached the target."""


class Training:
    """The computed training of one job."""

    def __init__(self, settings: Numerics, run: Surroundings, seed: int) -> None:
        self._settings, self._run = settings, run
        data_seed = settings.data_seed if settings.data_seed is not None else seed
        self.problem = build_problem(settings, data_seed)
        self.sample_count = len(self.problem.labels)
        workers = run.spec.workers
        self._parts: list[Indices] | None = None
        if settings.partition != "shared":
            self._parts = partition(settings.partition, self.problem.labels, workers, data_seed)
        self._cursors = [0] * workers
        # The random stream of a live job's first tensor, for the same initial values.
        stream = 0 if settings.dataset == "digits-of-jobs" else 41
        self.parameters = self.problem.start(np.random.default_rng([seed, stream]))
        self._optimizer = build_optimizer(settings.optimizer, self.problem.size)
        self._is_naive = run.spec.weighing == "naive"
        self._seed = seed
        self._rounds: dict[int, int] = {}
        """Federated: rounds of local steps begun, by rank."""
        self._orders: dict[tuple[int, int], Indices] = {}
        """Permutations by number of samples and pass."""
        self._pulled: dict[int, Array] = {}
        self._planned: dict[int, Indices] = {}
        """By rank: the samples of its iteration, unless it is cut short."""
        self._under_way: set[int] = set()
        """Workers whose gradient is not computed yet."""
        self._computed: dict[int, tuple[int, Array, float]] = {}
        """By rank: samples, sum of gradients, sum of losses."""
        self._reported: list[float] = [0.0] * workers
        self._open: list[tuple[int, Array]] = []
        self._kept: dict[int, list[tuple[int, int, Array]]] = {}
        self._gathered: list[tuple[int, Array]] = []
        """Updates that are summed until there are enough for a step."""
        self.updates = 0
        """Applied updates; each worker's update counts."""
        self.scores: list[tuple[float, int, float, float | None]] = []
        """Evaluations: virtual time, updates so far, held-out loss, accuracy."""
        self.reached: tuple[float, int] | None = None
        """When an evaluation first reached the target: virtual time and updates."""
        self._last_scored = -1

    # -- checkpoints

    def state(self) -> object:
        """The parameters, the optimizer's state, and the position in each part of the data."""
        return self.parameters, deepcopy(self._optimizer), list(self._cursors)

    def restore(self, state: object) -> None:
        """Restore a value of ``state``; work in progress is dropped."""
        assert isinstance(state, tuple)
        self.parameters, optimizer, cursors = state
        self._optimizer, self._cursors = deepcopy(optimizer), list(cursors)
        self._pulled, self._planned, self._computed, self._kept = {}, {}, {}, {}
        self._gathered = []
        self._under_way, self._open, self._last_scored = set(), [], -1

    def refill(self, rank: int, first: float, last: float, *, reverts: bool) -> None:
        """Move the parameters from fraction ``first`` to ``last`` to a new server without optimizer state.

        With ``reverts`` they take the values that the worker last pulled, and kept updates for them are dropped.
        """
        part = slice(round(first * self.problem.size), round(last * self.problem.size))
        self._optimizer.forget(part)
        if not reverts:
            return
        self.parameters = self.parameters.copy()
        self.parameters[part] = self._pulled[rank][part]
        for updates in self._kept.values():
            for at, (iteration, samples, total) in enumerate(updates):
                left = total.copy()
                left[part] = 0.0
                updates[at] = iteration, samples, left

    # -- what workers do

    def pulled(self, worker: Reporter, *, is_evaluator: bool) -> None:
        """A worker has pulled the present version; arrays are replaced, never changed in place, so none is copied."""
        self._pulled[worker.rank] = self.parameters
        if is_evaluator and worker.iteration % self._run.spec.evaluate.every == 0:
            self._evaluate(worker)

    def begin(self, worker: Reporter) -> None:
        """A worker has its samples."""
        self._planned[worker.rank] = self._samples(worker)
        self._under_way.add(worker.rank)
        self._computed.pop(worker.rank, None)

    def loss(self, rank: int) -> float:
        """Mean loss of the worker's last update; if it is not finite, that update was left out."""
        return self._reported[rank]

    # -- what servers do

    def contribute(self, rank: int, samples: int) -> None:
        """Add an update to the open iteration."""
        self._open.append(self._sum(rank, samples))

    def close(self) -> None:
        """Apply the sum of all updates divided by the number of samples; without samples nothing changes."""
        contributions, self._open = self._open, []
        self._take(contributions, 1.0)

    def apply(self, rank: int, samples: int, scale: float, gather: int = 1) -> None:
        """Apply an update on arrival: scaled, or together with others."""
        self._gather([self._sum(rank, samples)], scale, gather)

    def keep(self, rank: int, iteration: int, samples: int) -> None:
        """Keep an update until the barrier releases its worker (PSP Alg. 1)."""
        self._kept.setdefault(rank, []).append((iteration, *self._sum(rank, samples)))

    def let_in(self, passed: dict[int, int], scale: float, gather: int = 1) -> None:
        """Apply kept updates as one sum: a step with the combined length of all of them."""
        let: list[tuple[int, Array]] = []
        for rank, last in passed.items():
            kept = self._kept.get(rank, [])
            let += [(samples, total) for iteration, samples, total in kept if iteration <= last]
            self._kept[rank] = [update for update in kept if update[0] > last]
        self._gather(let, scale, gather)

    def _gather(self, contributions: list[tuple[int, Array]], scale: float, gather: int) -> None:
        self._gathered += contributions
        if len(self._gathered) >= gather:
            gathered, self._gathered = self._gathered, []
            self._take(gathered, scale * len(gathered) if gather == 1 else scale)

    @_OVERFLOWS
    def _take(self, contributions: list[tuple[int, Array]], scale: float) -> None:
        samples = sum(count for count, _ in contributions)
        self.updates += len(contributions)
        if samples and self._settings.federated is not None:
            equal = self._settings.federated.weights == "equal"
            weights = [1.0 if equal else float(count) for count, _ in contributions]
            mean = np.average([change for _, change in contributions], axis=0, weights=weights)
            self.parameters = self.parameters - mean
        elif samples:
            total = np.sum(self._weighed(contributions), axis=0)
            self.parameters = self.problem.step(self.parameters, total, samples, self._optimizer.mover(scale))

    def _weighed(self, contributions: list[tuple[int, Array]]) -> list[Array]:
        """Sums of gradients; for a naive mean, each is scaled to the same number of samples (LB-BSP Eq. 6)."""
        if not self._is_naive:
            return [summed for _, summed in contributions]
        some = [(count, summed) for count, summed in contributions if count]
        usual = sum(count for count, _ in some) / len(some)
        return [summed * (usual / count) for count, summed in some]

    # -- gradients

    def _sum(self, rank: int, samples: int) -> tuple[int, Array]:
        """Samples and gradient sum of a worker's update; empty if its loss is NaN, as in the live trainer."""
        found = self._computed.pop(rank, None)
        if samples < len(self._planned[rank]):
            self._planned[rank] = self._planned[rank][:samples]
            self._compute([rank])
            found = self._computed.pop(rank)
        elif found is None:
            self._compute(sorted(self._under_way))
            found = self._computed.pop(rank)
        self._cursors[rank] += samples
        loss = self._reported[rank] = found[2] / samples if samples else 0.0
        return (samples, found[1]) if math.isfinite(loss) else (0, np.zeros_like(found[1]))

    @_OVERFLOWS
    def _compute(self, ranks: list[int]) -> None:
        """Compute gradients of all ``ranks`` at once; shorter shares are padded and masked."""
        self._under_way.difference_update(ranks)
        if self._settings.federated is not None:
            self._train_locally(ranks, self._settings.federated)
            return
        shares = [self._planned[rank] for rank in ranks]
        samples, mask = stacked(shares)
        versions = [self._pulled[rank] for rank in ranks]
        is_one = all(version is versions[0] for version in versions)
        parameters = versions[0][None] if is_one else np.stack(versions)
        gradients, losses = self.problem.sums(parameters, samples, mask)
        for row, rank in enumerate(ranks):
            self._computed[rank] = len(shares[row]), gradients[row], float(losses[row])

    def _train_locally(self, ranks: list[int], settings: Federated) -> None:
        """Compute a round of local steps of each client on its own part."""
        usual, draws, rates = self._run.spec.batch_size, [], []
        for rank in ranks:
            share = len(self._planned[rank])
            steps, batch, times = steps_and_batch(settings, share, usual)
            chance = np.random.default_rng([self._seed, rank, self._rounds.get(rank, 0), 61])
            part = self._own_part(rank)
            draws.append([part[chance.integers(0, len(part), batch)] for _ in range(steps)])
            rates.append(self._settings.optimizer.lr * times)
            self._rounds[rank] = self._rounds.get(rank, 0) + 1
        starts = np.stack([self._pulled[rank] for rank in ranks])
        changes, losses = local_changes(self.problem, starts, draws, rates)
        for row, rank in enumerate(ranks):
            count = len(self._planned[rank])
            self._computed[rank] = count, changes[row], float(losses[row]) * count

    def _own_part(self, rank: int) -> Indices:
        return self._parts[rank] if self._parts is not None else np.arange(self.sample_count)

    def _samples(self, worker: Reporter) -> Indices:
        rank, count = worker.rank, worker.share
        if worker.pieces:
            parts = [self._at_positions(piece.start, piece.stop - piece.start) for piece in worker.pieces]
            return np.concatenate(parts)[:count]
        if self._parts is None:
            return self._at_positions(worker.position, count)
        part = self._parts[rank]
        if self._settings.partition == "two-shards":
            return part[self._at_positions(self._cursors[rank], count, len(part))]
        first = self._cursors[rank] if self._settings.resumes else 0
        return part[(first + np.arange(count)) % len(part)]

    def _at_positions(self, position: int, count: int, among: int | None = None) -> Indices:
        """Samples at a position, as in live workers: a seeded permutation per pass over the data, or over ``among``
        samples.
        """
        parts = []
        end = position + count
        while position < end:
            number, begin = divmod(position, among or self.sample_count)
            taken = self._permutation(among or self.sample_count, number)[begin : begin + end - position]
            parts.append(taken)
            position += len(taken)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _permutation(self, among: int, number: int) -> Indices:
        if (among, number) not in self._orders:
            if len(self._orders) >= ORDERS:
                del self._orders[min(self._orders, key=lambda known: known[1])]
            order = np.random.default_rng([self._seed, number]).permutation(among)
            if self._settings.order == "by-label":
                order = order[np.argsort(self.problem.labels[order], kind="stable")]
            self._orders[among, number] = order
        return self._orders[among, number]

    # -- evaluation

    @_OVERFLOWS
    def _evaluate(self, worker: Reporter) -> None:
        if self.updates == self._last_scored:
            return
        self._last_scored = self.updates
        loss, accuracy = self.problem.score(self.parameters)
        if not math.isfinite(loss):
            return  # the next reports contain it
        self.scores.append((self._run.now, self.updates, loss, accuracy))
        target = self._settings.target
        hits_loss = target.loss is not None and loss <= target.loss
        hits_accuracy = target.accuracy is not None and accuracy is not None and accuracy >= target.accuracy
        if self.reached is None and (hits_loss or hits_accuracy):
            self.reached = self._run.now, self.updates
            self._run.target_reached()
        worker.say(
            Evaluation(
                number=worker.number + 1,
                iteration=worker.iteration,
                loss=loss,
                accuracy=accuracy,
                samples=self._settings.held_out,
                seconds=0.0,
            )
        )
