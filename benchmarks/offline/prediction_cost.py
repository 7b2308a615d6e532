"""``manage.py bench prediction-cost``: what predicting and training take, for all workers of a job at once.

Predicting is what the hot path waits for: one iteration's measurements in, a state out, every worker's next speed
out. Training happens in a task of its own. Times are CPU times of this process, which other load does not
lengthen.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO

from benchmarks.offline.speed_series import SETTINGS, generate
from controlplane.core.events import PredictorTrained
from controlplane.policies import registry
from controlplane.policies.prediction.interface import Measured
from controlplane.policies.prediction.recurrent import Recurrent
from controlplane.protocol.spec import Choice

PREDICT_BAR_S: Final = 0.005
TRAIN_BAR_S: Final = 1.0
REPEATS: Final = 50


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Print both figures of every predictor, beside their bars."""
    parser = argparse.ArgumentParser(prog="bench prediction-cost", description=__doc__)
    parser.add_argument("--workers", type=int, default=1000, help="predicted for")
    parser.add_argument("--train-workers", type=int, default=100)
    options = parser.parse_args(arguments)
    print(f"{'':12} {'predict':>9} {'observe':>9}   {options.workers} workers, medians of {REPEATS}", file=out)
    for name in registry.names("prediction"):
        predict_s, observe_s, train_s = measure(name, options.workers, options.train_workers)
        trained = f"   training {options.train_workers} workers: {train_s:.2f} s" if train_s else ""
        print(f"{name:12} {predict_s * 1000:6.2f} ms {observe_s * 1000:6.2f} ms{trained}", file=out)
    print(f"bars: predicting under {PREDICT_BAR_S * 1000:g} ms, training under {TRAIN_BAR_S:g} s", file=out)
    return 0


def measure(name: str, workers: int, train_workers: int) -> tuple[float, float, float | None]:
    """CPU seconds to predict, to observe, and to train (None where there is nothing to)."""
    predictor = registry.resolve("prediction", Choice(name=name))
    train_s = None
    if isinstance(predictor, Recurrent):
        fit_data, _ = _lesson(predictor, train_workers, 500)
        predictor.fit(fit_data, 0)
        train_s = _seconds(lambda: predictor.fit(fit_data, 0), 3)
        data, state = _lesson(predictor, workers, 500)
        weights, error = predictor.fit(data, 0)
        news = PredictorTrained(predictor=name, round=1, weights=weights, error=error)
        state, _ = predictor.learn(state, news)
    else:
        state = _observed(predictor, workers, 20)[0]
    measured = _measurements(workers, 1)[0]
    return (
        _seconds(lambda: predictor.predict(state), REPEATS),
        _seconds(lambda: predictor.observe(measured, state), REPEATS),
        train_s,
    )


def _lesson(predictor: Any, workers: int, iterations: int) -> tuple[bytes, Any]:
    state, lesson = _observed(predictor, workers, iterations)
    return lesson.data, state


def _observed(predictor: Any, workers: int, iterations: int) -> tuple[Any, Any]:
    state, lesson = predictor.start(), None
    for measured in _measurements(workers, iterations):
        state = predictor.observe(measured, state)
        if isinstance(predictor, Recurrent) and lesson is None:
            state, lesson = predictor.request_lesson(state)
    return state, lesson


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
