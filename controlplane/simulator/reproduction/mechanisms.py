"""Observable causes of effects: a row whose mechanism was not active is not reproduced."""

import statistics
from collections.abc import Sequence
from typing import Final

from controlplane.simulator.reproduction.claims import Mechanism, Played
from controlplane.simulator.reproduction.measures import speed_in

FOLLOWS: Final = 0.5
"""Least correlation of the workers' mean shares with their speeds."""


def _shares_follow_speeds(played: Sequence[Played]) -> bool:
    """Over the whole run: correlation of samples per iteration and per second of computing and communication."""
    one = played[0]
    workers = zip(one.work, one.outcome.progress, strict=True) if one.work else ()
    made = [(samples / count, samples / busy_s) for (samples, busy_s), count in workers if busy_s and count]
    shares, speeds = [share for share, _ in made], [speed for _, speed in made]
    if len(made) < 2 or max(shares) - min(shares) < 1.0:
        return False
    return len({*speeds}) > 1 and statistics.correlation(shares, speeds) >= FOLLOWS


DIFFER: Final = Mechanism("shares differ", lambda played: max(played[0].outcome.shares) > min(played[0].outcome.shares))
SHARES: Final = Mechanism("mean shares correlate with the workers' speeds", _shares_follow_speeds)


def _exchanges_shorten(played: Sequence[Played]) -> bool:
    exchanges = played[0].exchanges
    return played[0].outcome.moved_bytes > 0 and sum(after for _, after in exchanges) < sum(b for b, _ in exchanges)


MOVED: Final = Mechanism("blocks change servers", lambda played: played[0].outcome.moved_bytes > 0)
BLOCKS: Final = Mechanism("blocks change servers, and exchanges become shorter by it", _exchanges_shorten)
SPLITS: Final = Mechanism("data get to other workers", lambda played: played[0].moved_splits > 0)
ADDED: Final = Mechanism("servers are added", lambda played: played[0].added_servers > 0)
CUT: Final = Mechanism(
    "tasks are cut short",
    lambda played: played[0].outcome.samples < 0.98 * max(1, played[0].outcome.updates) * max(played[0].outcome.shares),
)


def both(one: Mechanism, other: Mechanism) -> Mechanism:
    """Both mechanisms are active."""
    return Mechanism(f"{one.name}; {other.name}", lambda played: one.acts(played) and other.acts(played))


def in_every_pair(mechanism: Mechanism) -> Mechanism:
    """For rows over several jobs: active in each."""
    return Mechanism(
        f"{mechanism.name}, in every job",
        lambda played: all(mechanism.acts(played[at : at + 2]) for at in range(0, len(played), 2)),
    )


def _parts(one: Played) -> float:
    outcome = one.outcome
    return outcome.compute + outcome.communication + outcome.waiting + outcome.coordination


OVERLAPPED: Final = Mechanism("sending overlaps computing", lambda played: _parts(played[0]) > 1.01)
"""The parts of an iteration sum to more than its length. Without overlap communication is a larger part than in the
papers' systems, and a figure that depends on it would be right only by chance.
"""

AHEAD: Final = Mechanism("workers go ahead of others", lambda played: played[0].outcome.inconsistency > 0)
SLOWED: Final = Mechanism("the slow part holds the job up", lambda played: _slowed(played))


def stays_slow(before_s: tuple[float, float], after_s: tuple[float, float]) -> Mechanism:
    """For rows about recovered servers, against a comparator that does not notice the recovery."""

    def acts(played: Sequence[Played]) -> bool:
        mine, its = (speed_in(one, *after_s) / speed_in(one, *before_s) for one in played[:2])
        return its < STAYS <= mine

    return Mechanism("the comparator stays with what it saw of slow servers, and only it remains slower", acts)


STAYS: Final = 0.95
"""Fraction of the earlier speed below which a run counts as slower."""


def _slowed(played: Sequence[Played]) -> bool:
    return played[0].outcome.iteration_s > played[1].outcome.iteration_s


STALE: Final[float] = 1.1
"""Least ratio of updates at which staleness has an effect."""


def _updates(played: Sequence[Played]) -> tuple[int, int] | None:
    """Updates to the target of the first two runs; None if one of them did not reach it."""
    mine, its = (one.outcome.updates_to_target for one in played[:2])
    return (mine, its) if mine and its else None


def _more_updates(played: Sequence[Played]) -> bool:
    found = _updates(played)
    return found is not None and found[1] >= STALE * found[0]


COSTS_UPDATES: Final = Mechanism("staleness makes the comparator need a tenth more updates", _more_updates)
MORE_STALENESS_COSTS: Final = Mechanism(
    "staleness makes the comparator need a tenth more updates than SSP (3)",
    lambda played: _more_updates(played[2:0:-1]),
)
"""For rows whose third run is SSP (3)."""


def _fewer_updates(played: Sequence[Played]) -> bool:
    found = _updates(played)
    return found is not None and found[0] < found[1]


SAVES_UPDATES: Final = Mechanism("what is left over is worth more: fewer updates are needed", _fewer_updates)


def _is_faster(played: Sequence[Played]) -> bool:
    return played[0].outcome.iteration_s < played[1].outcome.iteration_s


SHORTER: Final = Mechanism("iterations are shorter", _is_faster)


def _forecasts_better(played: Sequence[Played]) -> bool:
    mine, its = (one.rmse for one in played[:2])
    return mine is not None and its is not None and mine < its


FORECASTS: Final = Mechanism("speeds are forecast with less error than the comparator's", _forecasts_better)

LOST: Final = 0.02
"""Least accuracy that the other variants must lose to be distinguishable from one that keeps it."""


def _others_lose(played: Sequence[Played]) -> bool:
    mine, _, *others = (statistics.fmean(one.accuracies) if one.accuracies else 0.0 for one in played)
    return all(other <= mine - LOST for other in others)


OTHERS_LOSE: Final = Mechanism("the other variants lose accuracy", _others_lose)
"""For rows whose third and later runs are these variants."""


def _falls(played: Sequence[Played]) -> list[float | None]:
    """For runs in pairs: how much lower the second one's mean accuracy is."""
    means = [statistics.fmean(one.accuracies) if one.accuracies else None for one in played]
    return [
        first - second if first is not None and second is not None else None
        for first, second in zip(means[::2], means[1::2], strict=True)
    ]


def _others_fall_further(played: Sequence[Played]) -> bool:
    mine, *others = _falls(played)
    return mine is not None and all(other is not None and other > mine for other in others)


OTHERS_FALL_FURTHER: Final = Mechanism("the other policies lose more accuracy", _others_fall_further)
"""For rows about a loss of accuracy from the first run to the second, whose later pairs are the other policies'."""
