"""Computes the gain of a run from its shares. Pure.

The last iterations are compared with those that had equal shares, if there are enough of these after the warm-up.
Otherwise the time with equal shares is estimated from the last iterations: each rank's time per sample, times an equal
share. This is an upper bound, since a rank's constant time per iteration is scaled with the share.
"""

from collections.abc import Sequence
from statistics import median, mode

from paceline.client.columns import Metrics

METRICS = ("iteration_s", "compute_s", "waiting_s", "samples")
WARM_UP = 16
"""Iterations in which kernels are loaded, caches are filled and measurements are exchanged."""
ENOUGH = 10
"""Minimum number of iterations with equal shares for a comparison."""
LAST = 20
APART = 1.05
"""Shares with a smaller ratio count as equal."""


def gained(metrics: Metrics, page: str) -> str:
    """Return one or two sentences about a job that has ended."""
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
        return f"{len(whole)} iterations of {_ms(rows, whole)}, with equal shares throughout: {why}. {page}"
    now = _ms(rows, last)
    text = f"{len(whole)} iterations, the last {len(last)} of {now}, {_waiting(rows, last)} of it waiting"
    before = [k for k in even if k >= whole[0] + WARM_UP]
    if not _are_apart(rows["samples"], last):
        text += "; the ranks are about equally fast"
    elif len(before) >= ENOUGH:
        ratio = _time(rows, before) / _time(rows, last) * _size(rows, last) / _size(rows, before)
        text += f"; with equal shares {_ms(rows, before)}, {_waiting(rows, before)} waiting: {ratio:.2f} times as fast"
    elif (equal_s := _estimated_s(rows, last)) > _time(rows, last):
        text += f"; equal shares would take up to {_seconds(equal_s)}, by each rank's time per sample"
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
    """Iterations of the usual batch size, or of a larger batch if it has grown: the last of a pass has only the
    remaining samples.
    """
    sizes = {k: sum(rows["samples"].get(k, {}).values()) for k in whole}
    usual = mode(sizes.values()) if sizes else 0
    return [k for k in whole if sizes[k] >= usual]


def _size(rows: Rows, iterations: Sequence[int]) -> float:
    """Samples of one iteration, over all ranks."""
    return median(sum(rows["samples"].get(k, {}).values()) for k in iterations) or 1.0


def _even(samples: dict[int, dict[int, float]], whole: Sequence[int]) -> list[int]:
    """The iterations before the first one with unequal shares, if there is such a division."""
    found = []
    for k in whole:
        row = samples.get(k, {}).values()
        if row and max(row) - min(row) > 1:
            break
        found.append(k)
    return found


def _time(rows: Rows, iterations: Sequence[int]) -> float:
    return median(max(rows["iteration_s"][k].values()) for k in iterations)


def _estimated_s(rows: Rows, iterations: Sequence[int]) -> float:
    """An upper bound of the time with equal shares; 0: some rank processed no samples in these iterations."""
    found = []
    for k in iterations:
        samples, compute = rows["samples"][k], rows["compute_s"].get(k, {})
        if compute.keys() == samples.keys() and all(samples.values()):
            equal = sum(samples.values()) / len(samples)
            longest = max(compute[rank] * equal / share for rank, share in samples.items())
            found.append(max(rows["iteration_s"][k].values()) - max(compute.values()) + longest)
    return median(found) if found else 0.0


def _ms(rows: Rows, iterations: Sequence[int]) -> str:
    return _seconds(_time(rows, iterations))


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _waiting(rows: Rows, iterations: Sequence[int]) -> str:
    whole = sum(sum(rows["iteration_s"][k].values()) for k in iterations)
    waited = sum(sum(rows["waiting_s"].get(k, {}).values()) for k in iterations)
    return f"{waited / whole if whole else 0.0:.0%}"


def _are_apart(samples: dict[int, dict[int, float]], iterations: Sequence[int]) -> bool:
    typical = _typical(samples, iterations)
    return max(typical) > APART * min(typical) + 1


def _typical(samples: dict[int, dict[int, float]], iterations: Sequence[int]) -> list[float]:
    ranks = sorted(samples[iterations[-1]])
    return [median(samples[k][rank] for k in iterations if rank in samples.get(k, {})) for rank in ranks]


def _shares(samples: dict[int, dict[int, float]], iterations: Sequence[int]) -> str:
    typical = _typical(samples, iterations)
    return " / ".join(f"{share:.0f}" for share in typical[:16]) + (" ..." if len(typical) > 16 else "")
