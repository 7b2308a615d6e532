"""Compares shares with even ones: if they make iterations slower, the operator is notified.

The time of an iteration with even shares is estimated from its measurements: each worker's compute time per sample
times the even share, plus its communication time. With a fixed cost per iteration this overestimates the time of even
shares: the finding may be late, but is never premature.
"""

from collections.abc import Sequence

from controlplane.core.choices import Finding, Observation
from controlplane.policies.wording import seconds
from controlplane.protocol.base import Value

KIND = "shares"

RECOVERS = 0.99
"""An open finding closes when shares are at least this much better than even ones, so that noise does not close it."""


class EvenShares(Value, frozen=True, kw_only=True):
    """The latest iterations under uneven shares."""

    actual_s: list[float] = []
    even_s: list[float] = []
    open: bool = False


def watch(
    observations: Sequence[Observation], state: EvenShares, *, iterations: int
) -> tuple[EvenShares, list[Finding]]:
    """Add one iteration of comparable observations."""
    shares = [seen.samples for seen in observations]
    if not iterations or len(shares) < 2:
        return state, []
    if max(shares) - min(shares) <= 1:
        closing = [_finding(False, "shares are even again")] if state.open else []
        return EvenShares(), closing
    even = sum(shares) / len(shares)
    actual_s = max(seen.busy_s for seen in observations)
    even_s = max(seen.compute_s / seen.samples * even + seen.communication_s for seen in observations)
    actual = [*state.actual_s, actual_s][-iterations:]
    evens = [*state.even_s, even_s][-iterations:]
    is_open = _is_open(actual, evens, state, iterations)
    found = []
    if is_open != state.open:
        means = f"{seconds(sum(actual) / len(actual))} per iteration over the last {len(actual)}"
        instead = f"even ones would have taken {seconds(sum(evens) / len(evens))}"
        worse = "shares make the job slower" if is_open else "shares are faster than even ones again"
        found = [_finding(is_open, f"{worse}: {means}, {instead}")]
    return EvenShares(actual_s=actual, even_s=evens, open=is_open), found


def _is_open(actual: Sequence[float], evens: Sequence[float], state: EvenShares, iterations: int) -> bool:
    if state.open:
        return sum(actual) > RECOVERS * sum(evens)
    if len(actual) < iterations or sum(actual) <= sum(evens):
        return False
    return 2 * sum(one > other for one, other in zip(actual, evens, strict=True)) > iterations


def _finding(is_open: bool, sentence: str) -> Finding:
    return Finding(rank=0, kind=KIND, open=is_open, sentence=sentence, subject="job")
