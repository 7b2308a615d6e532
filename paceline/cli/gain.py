"""What a run gained: its iterations with even shares compared with its last ones. Pure."""

from collections.abc import Sequence
from statistics import median, mode

from paceline.client.columns import Metrics

METRICS = ("iteration_s", "waiting_s", "samples")
WARM_UP = 2
"""Iterations that load kernels and fill caches."""
LAST = 20


def gained(metrics: Metrics, page: str) -> str:
    """One or two sentences about a job that has ended."""
    rows = _by_iteration(metrics)
    whole = _alike(rows, [k for k in sorted(rows["iteration_s"]) if len(rows["iteration_s"][k]) == _world(rows)])
    if not whole:
        return f"No iteration was reported by all ranks; see {page} for the reports received."
    even = _even(rows["samples"], whole)
    last = whole[-LAST:]
    if len(even) == len(whole):
        why = (
            "the ranks were equally fast, or there were too few iterations to compare"
            if _world(rows) > 1
            else "one rank"
        )
        return f"{len(whole)} iterations of {_ms(rows, whole)}, with even shares throughout: {why}. {page}"
    now = _ms(rows, last)
    text = f"{len(whole)} iterations, the last {len(last)} of {now}, {_waiting(rows, last)} of it waiting"
    before = [k for k in even if k >= whole[0] + WARM_UP] or even
    if before:
        ratio = _time(rows, before) / _time(rows, last)
        text += f"; with even shares {_ms(rows, before)}, {_waiting(rows, before)} waiting: {ratio:.2f} times as fast"
    return f"{text}. Shares: {_shares(rows['samples'], last)}. {page}"


Rows = dict[str, dict[int, dict[int, float]]]


def _by_iteration(metrics: Metrics) -> Rows:
    rows: Rows = {name: {} for name in METRICS}
    for one in metrics.series:
        if one.worker is not None and one.metric in rows:
            for iteration, value in zip(one.iterations, one.values, strict=True):
                rows[one.metric].setdefault(iteration, {})[one.worker] = value
    return rows


def _world(rows: Rows) -> int:
    return max((len(row) for row in rows["iteration_s"].values()), default=0)


def _alike(rows: Rows, whole: Sequence[int]) -> list[int]:
    """Iterations of the usual size: the last one of a pass has only the remaining samples."""
    sizes = {k: sum(rows["samples"].get(k, {}).values()) for k in whole}
    usual = mode(sizes.values()) if sizes else 0
    return [k for k in whole if sizes[k] == usual]


def _even(samples: dict[int, dict[int, float]], whole: Sequence[int]) -> list[int]:
    """The iterations before the first one with uneven shares, if they divide."""
    found = []
    for k in whole:
        row = samples.get(k, {}).values()
        if row and max(row) - min(row) > 1:
            break
        found.append(k)
    return found


def _time(rows: Rows, iterations: Sequence[int]) -> float:
    return median(max(rows["iteration_s"][k].values()) for k in iterations)


def _ms(rows: Rows, iterations: Sequence[int]) -> str:
    seconds = _time(rows, iterations)
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _waiting(rows: Rows, iterations: Sequence[int]) -> str:
    whole = sum(sum(rows["iteration_s"][k].values()) for k in iterations)
    waited = sum(sum(rows["waiting_s"].get(k, {}).values()) for k in iterations)
    return f"{waited / whole if whole else 0.0:.0%}"


def _shares(samples: dict[int, dict[int, float]], iterations: Sequence[int]) -> str:
    ranks = sorted(samples[iterations[-1]])
    typical = [median(samples[k][rank] for k in iterations if rank in samples.get(k, {})) for rank in ranks]
    return " / ".join(f"{share:.0f}" for share in typical[:16]) + (" ..." if len(typical) > 16 else "")
