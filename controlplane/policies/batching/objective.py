"""Shares that minimize energy or cost, within a given slack in time.

An iteration in lockstep ends with its slowest worker. A machine draws idle power, and costs its hourly price, until
then; while it is busy it draws more. With a linear model of each worker's time, the total is

    T * sum(idle) + sum(busy_i * t_i(share_i)),  T = max t_i(share_i) <= (1 + slack) * the time-optimal T.

For a given T the first term is constant. The second is minimal if samples go first to the machines with the least
energy per sample, each up to what it finishes by T. Only end times of some worker need to be tried as T.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from controlplane.core.choices import ShareDecision, ShareRequest
from controlplane.policies.batching.apportion import Limits, is_possible
from controlplane.policies.batching.min_max import Line, min_max
from controlplane.policies.wording import number, seconds
from controlplane.protocol.base import Value
from controlplane.protocol.energy import JOULES_PER_KWH, Draw, Objective

EXHAUSTIVE: Final = 20_000
"""All end times are tried if their number times the number of workers is at most this; otherwise they are searched.
"""

PROBES: Final = 40
"""Steps of that search, which minimizes a convex function; apart from rounding, this one is convex."""

WORTH: Final = 0.02
"""Savings of energy or cost below this fraction are not worth more time: speeds are not known more accurately."""


class Pursued(Protocol):
    """Parameters of a policy with a configurable objective."""

    @property
    def objective(self) -> Objective:
        """What shares minimize."""

    @property
    def slack(self) -> float:
        """The fraction by which an iteration may take longer."""


class Rates(Value, frozen=True, kw_only=True):
    """One worker's consumption per second: joules or money."""

    idle: float
    """Consumed in every second of an iteration."""
    busy: float
    """Additionally consumed in every busy second."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """A decision for the objective, with its gain over the present shares."""

    decision: ShareDecision
    gain: float
    """Relative gain in the objective; or in time, if the present shares exceed the slack or the new ones consume as
    much.
    """


def rates_of(objective: Objective, draw: Draw) -> Rates:
    """One worker's rates for an objective."""
    more = max(0.0, draw.busy_watts - draw.idle_watts)
    if objective == "energy":
        return Rates(idle=draw.idle_watts, busy=more)
    per_joule = draw.kwh / JOULES_PER_KWH
    return Rates(idle=draw.hour / 3600 + draw.idle_watts * per_joule, busy=more * per_joule)


def spent(shares: Mapping[int, int], lines: Mapping[int, Line], rates: Mapping[int, Rates]) -> float:
    """Total consumption of one iteration."""
    busy_s = {rank: lines[rank].at(share) for rank, share in shares.items()}
    whole_s = max(busy_s.values())
    return whole_s * sum(rate.idle for rate in rates.values()) + sum(
        rates[rank].busy * busy for rank, busy in busy_s.items()
    )


def frugal(
    best: Mapping[int, int],
    lines: Mapping[int, Line],
    rates: Mapping[int, Rates],
    limits: Limits,
    *,
    slack: float,
    multiple: int = 1,
    worth: float = 0.0,
) -> dict[int, int]:
    """Shares with the same sum, within ``limits`` and in multiples, that consume least.

    The longest time is at most ``1 + slack`` times that of ``best``, the time-optimal shares. These are the answer if
    no others consume less, and always without slack. Among shares that consume at most ``worth`` more than the least,
    the fastest is chosen.
    """
    total = sum(best.values())
    units = _in_units(total, lines, limits, multiple)
    if units is None:
        units, multiple = (lines, dict(limits)), 1
    counted, bounds = units
    start = {rank: share // multiple for rank, share in sorted(best.items())}
    if any(share % multiple for share in best.values()) or any(
        not low <= start[rank] <= high for rank, (low, high) in bounds.items()
    ):
        start = min_max(total // multiple, counted, bounds)
    found = start
    if slack > 0:
        found = _least(start, counted, rates, bounds, slack, worth)
    return {rank: share * multiple for rank, share in found.items()}


def pursue(
    objective: Objective,
    slack: float,
    request: ShareRequest,
    decision: ShareDecision,
    lines: Mapping[int, Line],
    limits: Limits,
) -> Adopted | None:
    """The decision for the objective; None while a worker's time or power is not known."""
    if objective == "time" or lines.keys() != request.current.keys() or request.draws.keys() != request.current.keys():
        return None
    rates = {rank: rates_of(objective, draw) for rank, draw in request.draws.items()}
    shares = frugal(decision.shares, lines, rates, limits, slack=slack, multiple=request.multiple, worth=WORTH)
    before, after = spent(decision.shares, lines, rates), spent(shares, lines, rates)
    fast_s, slow_s = _longest_s(decision.shares, lines), _longest_s(shares, lines)
    less = 1 - after / before if before > 0 else 0.0
    what = f"{number(after / request.total)} J per sample" if objective == "energy" else "cost per sample"
    reason = (
        f"{decision.reason}; {objective} within a slack of {slack:.0%}: {what}, {less:.1%} less than with the fastest"
        f" shares, in {seconds(slow_s)} instead of {seconds(fast_s)}"
    )
    if objective == "cost" and before <= 0:
        reason = (
            f"{decision.reason}; no price is known (energy.kwh, energy.hour or machines' labels), so none costs less"
        )
    now_s = _longest_s(request.current, lines)
    now = spent(request.current, lines, rates)
    gains = [1 - after / now if now > 0 else 0.0, now_s / ((1 + slack) * fast_s) - 1 if fast_s > 0 else 0.0]
    if after <= (1 + WORTH) * now and now_s > 0:
        gains.append(1 - slow_s / now_s)  # faster, for about the same consumption
    changed = msgspec.structs.replace(decision, shares=shares, reason=reason, predicted_s=slow_s)
    return Adopted(changed, max(gains))


def _in_units(
    total: int, lines: Mapping[int, Line], limits: Limits, multiple: int
) -> tuple[Mapping[int, Line], dict[int, tuple[int, int]]] | None:
    """Lines and limits in units of ``multiple`` samples; None if the total or the limits do not allow that."""
    bounds = {rank: (-(-low // multiple), high // multiple) for rank, (low, high) in limits.items()}
    if total % multiple or not is_possible(total // multiple, bounds):
        return None
    if multiple == 1:
        return lines, bounds
    return {rank: Line(begin=line.begin, per_sample=line.per_sample * multiple) for rank, line in lines.items()}, bounds


def _least(
    start: Mapping[int, int],
    lines: Mapping[int, Line],
    rates: Mapping[int, Rates],
    limits: Limits,
    slack: float,
    worth: float,
) -> dict[int, int]:
    total = sum(start.values())
    order = sorted(lines, key=lambda rank: (rates[rank].busy * lines[rank].per_sample, rank))
    latest_s = (1 + slack) * _longest_s(start, lines)
    soonest_s = min(_longest_s(start, lines), _longest_s(min_max(total, lines, limits), lines))

    def ending(by_s: float) -> dict[int, int] | None:
        return _poured(total, order, lines, limits, by_s)

    own = spent(start, lines, rates)
    ends = _ends(lines, limits, soonest_s, latest_s, ending, rates)
    used = {by_s: spent(shares, lines, rates) for by_s in ends if (shares := ending(by_s)) is not None}
    least = min(used.values(), default=own)
    enough = least * (1 + worth)
    if own <= enough or not used:
        return dict(start)
    kept = ending(min(by_s for by_s, value in used.items() if value <= enough))
    assert kept is not None
    return {rank: kept[rank] for rank in sorted(kept)}


def _ends(
    lines: Mapping[int, Line],
    limits: Limits,
    soonest_s: float,
    latest_s: float,
    ending: Callable[[float], dict[int, int] | None],
    rates: Mapping[int, Rates],
) -> list[float]:
    """End times of some worker with some share: all of them, or those that the search needs."""
    first = {rank: _fitting(lines[rank], limits[rank], soonest_s) for rank in lines}
    last = {rank: _fitting(lines[rank], limits[rank], latest_s) for rank in lines}
    count = sum(last[rank] - first[rank] + 1 for rank in lines)
    if count * len(lines) <= EXHAUSTIVE:
        ends = {lines[rank].at(share) for rank in lines for share in range(first[rank], last[rank] + 1)}
        return sorted(end for end in ends if soonest_s <= end <= latest_s)
    low, high, tried = soonest_s, latest_s, [soonest_s, latest_s]
    for _ in range(PROBES // 2):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        tried += [left, right]
        mine, its = (
            spent(shares, lines, rates) if (shares := ending(by_s)) is not None else float("inf")
            for by_s in (left, right)
        )
        low, high = (low, right) if mine <= its else (left, high)
    return tried


def _poured(
    total: int, order: list[int], lines: Mapping[int, Line], limits: Limits, by_s: float
) -> dict[int, int] | None:
    """Give samples to ranks in ``order``, each up to what it finishes by ``by_s``."""
    shares = {rank: limits[rank][0] for rank in order}
    left = total - sum(shares.values())
    for rank in order:
        most = _fitting(lines[rank], limits[rank], by_s)
        if lines[rank].at(shares[rank]) > by_s:
            return None
        taken = min(left, most - shares[rank])
        shares[rank] += taken
        left -= taken
    return shares if left == 0 else None


def _fitting(line: Line, limits: tuple[int, int], by_s: float) -> int:
    """The largest share within the limits that is finished by ``by_s``; at least the lower limit."""
    low, high = limits
    guess = int(min(max((by_s - line.begin) / line.per_sample, low), high))
    if line.at(guess) <= by_s:
        while guess < high and line.at(guess + 1) <= by_s:
            guess += 1
        return guess
    while guess > low and line.at(guess) > by_s:
        guess -= 1
    return guess


def _longest_s(shares: Mapping[int, int], lines: Mapping[int, Line]) -> float:
    return max(lines[rank].at(share) for rank, share in shares.items())
