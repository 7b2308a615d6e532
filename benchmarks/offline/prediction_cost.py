"""``manage.py bench prediction-cost``: the cost of predicting and training, for all workers of a job.

Predicting is what the hot path waits for: one iteration's measurements in, a state out, every worker's next speed
out. Training happens in a separate task. Times are CPU times of this process, which other load does not
lengthen.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TextIO

from benchmarks.offline.speed_series import SETTINGS, generate
from controlplane.core.events import PredictorTrained
from controlplane.policies import registry
from controlplane.policies.prediction.interface import Measured
from controlplane.policies.prediction.recurrent import Recurrent, RecurrentState
from controlplane.protocol.spec import Choice

PREDICT_BAR_S: Final = 0.005
TRAIN_BARS_S: Final = {100: 0.3, 1_000: 2.0}
"""To fit a predictor again, by the number of workers."""

REPEATS: Final = 50
RETRAININGS: Final = 3
UNTRAINED: Final = 20
"""Iterations that a predictor has seen that does not train."""


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Print the figures of every predictor; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="bench prediction-cost", description=__doc__)
    parser.add_argument("--workers", type=int, default=1000, help="predicted for")
    parser.add_argument(
        "--train-workers", type=int, nargs="*", default=list(TRAIN_BARS_S), help="trained for (default: 100 and 1,000)"
    )
    options = parser.parse_args(arguments)
    missed: list[str] = []
    print(f"{'':12} {'predict':>9} {'observe':>9}   {options.workers} workers, medians of {REPEATS}", file=out)
    for name in registry.names("prediction"):
        predict_s, observe_s, train_s = measure(name, options.workers, options.train_workers)
        trained = "".join(f"   training {count:,} workers: {took:.2f} s" for count, took in train_s.items())
        print(f"{name:12} {predict_s * 1000:6.2f} ms {observe_s * 1000:6.2f} ms{trained}", file=out)
        missed += failures(name, predict_s, train_s)
    training = ", ".join(f"{bar:g} s for {count:,} workers" for count, bar in TRAIN_BARS_S.items())
    print(f"bars: predicting {PREDICT_BAR_S * 1000:g} ms, training {training}", file=out)
    for sentence in missed:
        print(f"missed: {sentence}", file=out)
    return 1 if missed else 0


def failures(name: str, predict_s: float, train_s: Mapping[int, float]) -> list[str]:
    """Bars that a predictor missed, as sentences; training by the number of workers."""
    missed = []
    if predict_s > PREDICT_BAR_S:
        missed.append(f"{name}: predicting takes {predict_s * 1000:.2f} ms, at most {PREDICT_BAR_S * 1000:g} expected")
    for workers, took_s in train_s.items():
        if took_s > (bar_s := TRAIN_BARS_S.get(workers, math.inf)):
            missed.append(f"{name}: training {workers:,} workers takes {took_s:.2f} s, at most {bar_s:g} expected")
    return missed


def measure(name: str, workers: int, train_workers: Sequence[int]) -> tuple[float, float, dict[int, float]]:
    """CPU seconds to predict, to observe, and to train again, by the number of workers (empty: it does not train)."""
    predictor = registry.resolve("prediction", Choice(name=name))
    train_s: dict[int, float] = {}
    if isinstance(predictor, Recurrent):
        train_s = {count: _retraining_s(predictor, count) for count in train_workers}
        state = _trained(predictor, _measurements(workers, predictor.parameters.samples))
    else:
        state = predictor.start()
        for measured in _measurements(workers, UNTRAINED):
            state = predictor.observe(measured, state)
    measured = _measurements(workers, 1)[0]
    return (
        _seconds(lambda: predictor.predict(state), REPEATS),
        _seconds(lambda: predictor.observe(measured, state), REPEATS),
        train_s,
    )


def _retraining_s(predictor: Recurrent, workers: int) -> float:
    """With the weights of an earlier fit and the iterations since, as in a job that runs."""
    first, every = predictor.parameters.samples, predictor.parameters.retrain_every
    series = _measurements(workers, first + every)
    state = _trained(predictor, series[:first])
    for measured in series[first:]:
        state = predictor.observe(measured, state)
    _, lesson = predictor.request_lesson(state)
    assert lesson is not None
    return _seconds(lambda: predictor.fit(lesson.data, 0), RETRAININGS)


def _trained(predictor: Recurrent, series: Iterable[dict[int, Measured]]) -> RecurrentState:
    """Trained for the first time, behind the whole series."""
    state = predictor.start()
    for measured in series:
        state = predictor.observe(measured, state)
    state, lesson = predictor.request_lesson(state)
    assert lesson is not None
    weights, error = predictor.fit(lesson.data, 0)
    state, _ = predictor.learn(state, PredictorTrained(predictor=predictor.name, round=1, weights=weights, error=error))
    return state


def _measurements(workers: int, iterations: int) -> list[dict[int, Measured]]:
    series = generate(SETTINGS[0], iterations=iterations, seed=0, machines=workers)
    return [
        {rank: Measured(speed=v, cpu=c, memory=m) for rank, (v, c, m) in enumerate(zip(*row, strict=True))}
        for row in zip(series.speed.tolist(), series.cpu.tolist(), series.memory.tolist(), strict=True)
    ]


def _seconds(action: Callable[[], object], repeats: int) -> float:
    took = []
    for _ in range(repeats):
        began = time.process_time()
        action()
        took.append(time.process_time() - began)
    return statistics.median(took)


if __name__ == "__main__":
    sys.exit(main())
