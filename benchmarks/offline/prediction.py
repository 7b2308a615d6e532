"""``manage.py bench prediction``: the error of each predictor, and the resulting iteration times.

Every predictor gets the same series (``speed_series``), one iteration at a time, as in a job. From iteration 500 on,
after training, its error and the time of a synchronous iteration with its shares are measured: shares by LB-BSP Alg. 1,
time by the true speeds. The same value over the whole run, warm-up included, and the paper's Table 3 are printed too.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final, TextIO

import numpy as np

from benchmarks.offline.speed_series import SETTINGS, Series, Setting, generate
from controlplane.core.choices import Trainable
from controlplane.core.events import PredictorTrained
from controlplane.policies import registry
from controlplane.policies.batching.apportion import apportion
from controlplane.policies.prediction.interface import Measured
from controlplane.protocol.spec import Choice

ITERATIONS: Final = 1500
SETTLED: Final = 500
"""Figures are taken from here on, as the paper's are from the iteration on that NARX is trained at."""

BATCH: Final = 128
"""Per worker: that of ResNet-32 in the paper."""

PAPER: Final = {
    "memoryless": (11.85, 0.58),
    "ema": (7.85, 0.48),
    "arima": (9.67, 0.52),
    "rnn": (8.34, 0.49),
    "lstm": (9.19, 0.51),
    "narx": (4.78, 0.42),
}
"""LB-BSP Table 3: RMSE, and iteration time over that of BSP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One predictor on one series."""

    rmse: float
    """Samples per second, from iteration 500 on; mean over workers."""
    time: float
    """Iteration time over that of BSP's even shares, from iteration 500 on."""
    whole: float
    """The same over the whole run."""


KNOWING: Final = "(load known)"
"""Not a predictor: it knows the effect of the load on the coming speed, so that only noise and spikes remain."""


def run(name: str, series: Series) -> Outcome:
    """Let one predictor go through a series."""
    predicted = series.expected if name == KNOWING else forecasts(name, series)
    errors = (predicted - series.speed)[SETTLED:]
    times = np.array([_time(shares_for(guess), speeds) for guess, speeds in zip(predicted, series.speed, strict=True)])
    even = BATCH / series.speed.min(axis=1)
    return Outcome(
        rmse=float(np.mean(np.sqrt(np.mean(errors**2, axis=0)))),
        time=float(times[SETTLED:].mean() / even[SETTLED:].mean()),
        whole=float(times.mean() / even.mean()),
    )


def forecasts(name: str, series: Series, parameters: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """(iterations, workers): what was predicted for each iteration before it began; 1 before anything is known."""
    predictor = registry.resolve("prediction", Choice(name=name, parameters=dict(parameters)))
    iterations, workers = series.speed.shape
    state = predictor.start()
    predicted = np.ones((iterations, workers))
    for k in range(iterations):
        known = predictor.predict(state)
        predicted[k, list(known)] = list(known.values())
        state = predictor.observe(_measured(series, k), state)
        state = _trained(predictor, state)
    return predicted


def _measured(series: Series, k: int) -> dict[int, Measured]:
    """What the reports of iteration k say: its speed, and the readings with which the next one begins."""
    after = min(k + 1, len(series.cpu) - 1)
    columns = zip(series.speed[k].tolist(), series.cpu[after].tolist(), series.memory[after].tolist(), strict=True)
    return {rank: Measured(speed=v, cpu=c, memory=m) for rank, (v, c, m) in enumerate(columns)}


def _trained(predictor: Any, state: Any) -> Any:
    """Answer a lesson on the spot, if one is due."""
    trains = isinstance(predictor, Trainable)
    if not trains:
        return state
    state, lesson = predictor.request_lesson(state)
    if lesson is None:
        return state
    weights, error = predictor.fit(lesson.data, 0)
    news = PredictorTrained(predictor=lesson.predictor.name, round=lesson.round, weights=weights, error=error)
    return predictor.learn(state, news)[0]


def shares_for(speeds: Any) -> Any:
    """Alg. 1 lines 4 to 6."""
    total = BATCH * len(speeds)
    weights = dict(enumerate(np.maximum(speeds, 0.0).tolist()))
    shares = apportion(total, weights, dict.fromkeys(weights, (1, total)))
    return np.array([shares[rank] for rank in weights])


def _time(shares: Any, speeds: Any) -> float:
    return float((shares / speeds).max())


def ideal(series: Series) -> float:
    """The least possible iteration time over BSP's, from iteration 500 on."""
    times = [_time(shares_for(speeds), speeds) for speeds in series.speed[SETTLED:]]
    return float(np.mean(times) / (BATCH / series.speed[SETTLED:].min(axis=1)).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One predictor in one setting: means over the seeds, and their standard deviations."""

    setting: str
    predictor: str
    rmse: tuple[float, float]
    time: tuple[float, float]
    whole: tuple[float, float]


def measure(setting: Setting, names: Sequence[str], seeds: Iterable[int]) -> tuple[list[Row], float]:
    """A row for each predictor, and the least possible iteration time."""
    found: dict[str, list[Outcome]] = {name: [] for name in names}
    least = []
    for seed in seeds:
        series = generate(setting, iterations=ITERATIONS, seed=seed)
        least.append(ideal(series))
        for name in names:
            found[name].append(run(name, series))
    rows = [
        Row(setting=setting.name, predictor=name, **{key: _spread(outcomes, key) for key in ("rmse", "time", "whole")})
        for name, outcomes in found.items()
    ]
    return rows, statistics.mean(least)


def _spread(outcomes: Sequence[Outcome], key: str) -> tuple[float, float]:
    values = [getattr(outcome, key) for outcome in outcomes]
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Print the table, or with ``--json`` the figures."""
    parser = argparse.ArgumentParser(prog="bench prediction", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many series of each setting")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--predictors", default=",".join(registry.names("prediction")))
    parser.add_argument(
        "--series", "--settings", dest="settings", default=",".join(setting.name for setting in SETTINGS)
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    results: list[dict[str, Any]] = []
    for setting in SETTINGS:
        if setting.name not in options.settings.split(","):
            continue
        began = time.monotonic()
        rows, least = measure(setting, [*options.predictors.split(","), KNOWING], seeds)
        results += [asdict(row) for row in rows]
        if not options.json:
            _print(setting, rows, least, len(seeds), time.monotonic() - began, out)
    if options.json:
        json.dump({"seeds": list(seeds), "rows": results}, out)
    return 0


def _print(setting: Setting, rows: Sequence[Row], least: float, seeds: int, took_s: float, out: TextIO) -> None:
    print(f"\n{setting.name}: {setting.story}", file=out)
    print(f"32 workers, {ITERATIONS} iterations, {seeds} seeds; {took_s:.0f} s", file=out)
    print(f"{'':12} {'RMSE':>14} {'time/BSP':>16} {'whole run':>16}   paper: RMSE, time", file=out)
    for row in sorted(rows, key=lambda row: row.time):
        paper = "{:.2f}  {:.2f}".format(*PAPER[row.predictor]) if row.predictor in PAPER else "-"
        print(
            f"{row.predictor:12} {row.rmse[0]:7.2f} ± {row.rmse[1]:4.2f} {row.time[0]:9.3f} ± {row.time[1]:.3f}"
            f" {row.whole[0]:9.3f} ± {row.whole[1]:.3f}   {paper}",
            file=out,
        )
    print(f"{'least':12} {'':14} {least:9.3f}", file=out)
    by_name = {row.predictor: row for row in rows}
    if {"narx", "ema", "regression"} <= by_name.keys():
        narx, ema, regression = by_name["narx"], by_name["ema"], by_name["regression"]
        print(
            f"narx's RMSE is {1 - narx.rmse[0] / ema.rmse[0]:.0%} below ema's (asked for: 25 %); "
            f"regression's iteration time is {1 - regression.time[0] / narx.time[0]:.0%} below narx's (12 %), "
            f"over the whole run {1 - regression.whole[0] / narx.whole[0]:.0%}",
            file=out,
        )


if __name__ == "__main__":
    sys.exit(main())
