"""Small hand-made columns for figures."""

from dataclasses import replace

import numpy as np

from controlplane.protocol.measurements import OF_MACHINES, OF_WORKERS
from controlplane.telemetry.logged import Series
from frontend.figures.measured_rows import Measured, MeasuredWorker, Samples
from frontend.figures.rows import (
    Convergence,
    Heat,
    Holding,
    Lead,
    Leads,
    Load,
    Other,
    Others,
    Placements,
    Predictions,
    PredictorErrors,
    Simulated,
    SimulatedOutcome,
    Speeds,
    SpeedSeries,
    Traces,
    Waited,
    Waiting,
    Window,
    WorkerIteration,
    WorkerTrace,
    Worth,
)
from frontend.figures.topology import ServerNode, Topology, WorkerNode


def worker(rank: int, shares: list[int], compute_s: list[float], waiting_s: list[float]) -> WorkerTrace:
    """A worker with one entry per iteration."""
    count = len(shares)
    return WorkerTrace(
        rank=rank,
        label=f"w{rank}",
        iteration=np.arange(count),
        elapsed_s=np.arange(1, count + 1) * 0.25,
        samples=np.array(shares, np.float64),
        lowest=np.array(shares),
        highest=np.array(shares),
        compute_s=np.array(compute_s),
        communication_s=np.full(count, 0.004),
        waiting_s=np.array(waiting_s),
        coordination_s=np.full(count, 0.001),
    )


def two_workers() -> Traces:
    """A fast and a slow worker over three iterations: even, then balanced."""
    fast = worker(0, [64, 64, 102], [0.064, 0.064, 0.102], [0.192, 0.192, 0.002])
    slow = worker(1, [64, 64, 26], [0.256, 0.256, 0.104], [0.0, 0.0, 0.0])
    return Traces(workers=(fast, slow), roster=2, width=1, reports=6)


def no_workers() -> Traces:
    """A job that has not begun."""
    return Traces(workers=(), roster=2, width=1, reports=0)


def learning(points: int = 3) -> Convergence:
    """Loss that falls, and two scores."""
    iteration = np.arange(points)
    return Convergence(
        iteration=iteration,
        elapsed_s=(iteration + 1) * 0.25,
        samples=(iteration + 1) * 128,
        updates=(iteration + 1) * 2,
        batch=np.full(points, 128.0),
        loss=2.3 / (1 + 0.5 * iteration),
        reports=2 * points,
        scored_iteration=np.array([0, points]),
        scored_elapsed_s=np.array([0.1, points * 0.25]),
        scored_samples=np.array([0, points * 128]),
        scored_updates=np.array([0, points * 2]),
        scored_loss=np.array([2.3, 0.9]),
        scored_accuracy=np.array([0.1, 0.85]),
        target=0.85,
        training_samples=256,
    )


def nothing_learned() -> Convergence:
    """Neither a report nor a score."""
    none, whole = np.empty(0), np.empty(0, np.int64)
    return Convergence(
        iteration=whole,
        elapsed_s=none,
        samples=whole,
        updates=whole,
        batch=none,
        loss=none,
        reports=0,
        scored_iteration=whole,
        scored_elapsed_s=none,
        scored_samples=whole,
        scored_updates=whole,
        scored_loss=none,
        scored_accuracy=none,
        target=None,
        training_samples=None,
    )


def ahead() -> Leads:
    """A worker that runs up to two iterations ahead, and the slow one."""
    iteration = np.arange(4)
    fast = Lead(rank=0, label="w0", iteration=iteration, elapsed_s=(iteration + 1) * 0.1, ahead=np.array([0, 1, 2, 2]))
    slow = Lead(rank=1, label="w1", iteration=iteration, elapsed_s=(iteration + 1) * 0.2, ahead=np.zeros(4, np.int64))
    return Leads(workers=(fast, slow), roster=2, batch=128, barrier="ssp", reason="")


def nobody_ahead() -> Leads:
    """No one has reported."""
    return Leads(workers=(), roster=2, batch=128, barrier="bsp", reason="Nobody has reported.")


def heat_of(values: list[list[float]], *, width: int = 1) -> Heat:
    """A map with a row per worker."""
    ranks = tuple(range(len(values)))
    columns = len(values[0]) if values else 0
    return Heat(
        ranks=ranks,
        labels=tuple(f"w{rank} machine-{rank}" for rank in ranks),
        first=np.arange(columns) * width,
        width=width,
        values=np.array(values, np.float64).reshape(len(ranks), columns),
    )


def two_rows() -> Heat:
    """A worker and one of a quarter of its speed, who was away in the last iteration."""
    return heat_of([[0.064, 0.064, 0.064, 0.102], [0.256, 0.256, 0.256, float("nan")]])


def of_two_kinds() -> Heat:
    """The same beside another of the fast kind."""
    rows = [[0.064, 0.064, 0.064, 0.102], [0.066, 0.064, 0.064, 0.1], [0.256, 0.256, 0.256, float("nan")]]
    return replace(heat_of(rows), classes=("fast", "fast", "slow"))


def span(
    rank: int, iteration: int, *, ended_s: float, compute_s: float, waiting_s: float, data_s: float = 0.0
) -> WorkerIteration:
    """One worker in one iteration, with 1 ms of pull, push and coordination each."""
    return WorkerIteration(
        rank=rank,
        iteration=iteration,
        ended_s=ended_s,
        data_s=data_s,
        compute_s=compute_s,
        push_s=0.001,
        pull_s=0.001,
        waiting_s=waiting_s,
        coordination_s=0.001,
        samples=64,
    )


def two_iterations() -> Window:
    """In the first w1 comes last and w0 waits for it; in the second w0 does."""
    spans = (
        span(0, 4, ended_s=1.070, compute_s=0.067, waiting_s=0.0),
        span(1, 4, ended_s=1.259, compute_s=0.256, waiting_s=0.0),
        span(0, 5, ended_s=1.400, compute_s=0.130, waiting_s=0.197),
        span(1, 5, ended_s=1.330, compute_s=0.068, waiting_s=0.0),
    )
    return Window(spans=spans, ranks=(0, 1), roster=2, first=4, last=5, newest=9)


def no_window() -> Window:
    """No one has reported."""
    return Window(spans=(), ranks=(), roster=2, first=0, last=0, newest=0)


def moved() -> Placements:
    """Two servers of which the slower gave a block of 4 MiB to the other; 20 MiB in all."""
    fast = Holding(
        server=0, blocks=((0, 4 << 20), (1, 4 << 20), (3, 4 << 20), (4, 4 << 20)), push_s=0.008, pull_s=0.008
    )
    slow = Holding(server=1, blocks=((2, 4 << 20),), push_s=0.02, pull_s=0.02)
    before = (
        Holding(server=0, blocks=fast.blocks[:3], push_s=0.006, pull_s=0.006),
        Holding(server=1, blocks=((2, 4 << 20), (4, 4 << 20)), push_s=0.04, pull_s=0.04),
    )
    worth = Worth(before_s=0.08, predicted_s=0.042, after_s=0.041)
    return Placements(now=(fast, slow), before=before, worth=worth, version=2, policy="psld", updates_per_s=10.0)


def unplaced() -> Placements:
    """A job whose servers have not said hello."""
    return Placements(now=(), before=(), version=0, policy="")


def waited() -> Waiting:
    """A fast worker that waits for half of its time and runs ahead, and a slow one that never does."""
    fast = Waited(
        rank=0,
        label="w0",
        data_s=5.0,
        compute_s=75.0,
        communication_s=20.0,
        waiting_s=110.0,
        coordination_s=10.0,
        staleness=1.5,
        staleness_most=3,
    )
    slow = Waited(
        rank=1,
        label="w1",
        data_s=0.0,
        compute_s=190.0,
        communication_s=20.0,
        waiting_s=0.0,
        coordination_s=10.0,
        staleness=0.0,
        staleness_most=0,
    )
    return Waiting(
        workers=(fast, slow), again_s=0.0, again_coordination_s=0.0, again_whole_s=0.0, barrier="ssp", recent=40
    )


def not_waited() -> Waiting:
    """No one has reported yet."""
    return Waiting(workers=(), again_s=0.0, again_coordination_s=0.0, again_whole_s=0.0, barrier="bsp", recent=0)


def ways() -> Others:
    """Policies: one that does less, one that saves for sure, one that may, one that did not end; and other machines."""

    def way(
        name: str, saved: float, spread: float, *, samples: float = 1.0, unfinished: bool = False, kind: str = "policy"
    ) -> Other:
        return Other(
            kind=kind,
            name=name,
            iteration_s=0.1 * (1 - saved),
            waiting=0.2,
            saved=saved,
            low=saved - spread,
            high=saved + spread,
            samples=samples,
            unfinished=unfinished,
        )

    found = (
        way("backup", 0.5, 0.0, samples=0.75),
        way("lb-bsp-ema", 0.4, 0.05),
        way("one more like w0", 0.12, 0.02, kind="machines"),
        way("twice the bandwidth", 0.01, 0.01, kind="machines"),
        way("asp", 0.0, 0.0, unfinished=True),
        way("ssp", -0.02, 0.1),
        way("without w0", -0.35, 0.03, kind="machines"),
    )
    return Others(ways=found, now=way("recorded", 0.0, 0.0), doubt=0.04, reason="")


def linked() -> Topology:
    """Three workers on two machines of two racks, with two servers."""
    return Topology(
        workers=(
            WorkerNode(index=0, machine="m0", rack="a", waiting=0.6),
            WorkerNode(index=1, machine="m0", rack="a", waiting=0.3),
            WorkerNode(index=2, machine="m1", rack="b", waiting=0.0),
        ),
        servers=(
            ServerNode(index=0, machine="m0", rack="a", held_bytes=6 << 20),
            ServerNode(index=1, machine="m1", rack="b", held_bytes=2 << 20),
        ),
        roster=3,
    )


def no_ways() -> Others:
    """Nothing was played yet."""
    return Others(ways=(), now=None, doubt=0.0, reason="Other ways are being played.")


def predicting() -> PredictorErrors:
    """Two predictors, one of which was not scored at first."""
    errors = {"ema": np.array([0.10, 0.08, 0.05]), "narx": np.array([np.nan, 0.06, 0.02])}
    return PredictorErrors(iteration=np.array([10, 20, 30]), errors=errors, acting="ema")


def predicted() -> Predictions:
    """Two predictions that held, and one that did not."""
    return Predictions(
        iteration=np.array([10, 20, 30]),
        predicted_s=np.array([0.100, 0.100, 0.080]),
        measured_s=np.array([0.104, 0.099, 0.120]),
    )


def nothing_predicted() -> Predictions:
    """No decision predicted anything."""
    return Predictions(iteration=np.empty(0, np.int64), predicted_s=np.empty(0), measured_s=np.empty(0))


def not_predicting() -> PredictorErrors:
    """Nothing was scored yet."""
    return PredictorErrors(iteration=np.empty(0, np.int64), errors={}, acting="")


def speeds() -> Speeds:
    """A worker at two batch sizes."""
    rate = np.array([230.0, 245.0])
    one = SpeedSeries(label="job 7 w3", batch=np.array([23, 64]), samples_per_second=rate, low=rate - 5, high=rate + 3)
    return Speeds(series=(one,), reports=60)


def measured() -> Measured:
    """Two workers that have every measurement, of which the second began later."""
    names = [each.name for each in OF_WORKERS if each.chart]
    workers = tuple(
        MeasuredWorker(
            rank=rank,
            label=f"w{rank}",
            iteration=np.arange(3),
            elapsed_s=np.array([0.1, 0.2, 0.3]),
            values=dict.fromkeys(names, np.array([0.2 if rank == 0 else np.nan, 0.5 + 0.1 * rank, 0.4])),
        )
        for rank in range(2)
    )
    return Measured(workers=workers, roster=2, width=1, batch=256, reports=6)


def unmeasured() -> Measured:
    """Nothing was reported."""
    return Measured(workers=(), roster=2, width=1, batch=256, reports=0)


def samples() -> Samples:
    """Half a minute of a machine."""
    values = dict.fromkeys((each.name for each in OF_MACHINES), np.array([0.25, np.nan, 0.75]))
    return Samples(at_ms=1_772_443_800_000 + np.arange(3) * 10_000, values=values)


def load() -> Load:
    """Half a minute."""
    at_ms = 1_772_443_800_000 + np.arange(3) * 10_000
    return Load(at_ms=at_ms, cpu=np.array([0.2, 0.5, 0.4]), memory=np.array([0.3, 0.3, 0.3]))


def simulated() -> Simulated:
    """Two policies, one of them twice as fast."""
    even = {"compute": 0.5, "communication": 0.05, "waiting": 0.43, "coordination": 0.02}
    balanced = {"compute": 0.9, "communication": 0.05, "waiting": 0.03, "coordination": 0.02}
    outcomes = (
        SimulatedOutcome(policy="bsp", iteration_s=0.2, **even),
        SimulatedOutcome(policy="lb-bsp-cpu", iteration_s=0.1, **balanced),
    )
    return Simulated(outcomes=outcomes, baseline="bsp")


def logged() -> list[Series]:
    """A learning rate at each iteration, and an accuracy at some."""
    return [
        Series("accuracy", np.array([4, 8]), np.array([0.5, 0.75])),
        Series("lr", np.arange(10), np.linspace(0.1, 0.01, 10)),
    ]
