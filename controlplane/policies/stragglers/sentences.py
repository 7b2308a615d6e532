"""What the operator reads about a straggler: the sentence and the numbers behind it."""

import statistics
from collections.abc import Sequence
from typing import Any

from controlplane.core.choices import Finding, Observation
from controlplane.policies.stragglers.scoring import Kind, Score
from controlplane.policies.wording import seconds

HOLDS_UP = 1.05
"""A worker that is busy for so many times as long as another one is said to keep it waiting."""


def opening(
    kind: Kind, rank: int, scores: Sequence[Score], slow: int, also: Sequence[Kind], measured: Sequence[Observation]
) -> Finding:
    """A flag opens: how slow, how often, in what, and what it does to the others now.

    ``slow`` of ``scores`` were slow; ``also`` are the other respects in which this worker is slow at the moment.
    """
    evidence = _evidence(kind, scores) | {"slow_iterations": slow, "window": len(scores)} | _effect(rank, measured)
    other = "communication" if kind == "compute" else "compute"
    cause = f"{kind}, and {other} as well" if also else f"{kind}, not {other}"
    sentence = (
        f"w{rank} took {_ratio(kind, evidence)} in {slow} of the last {len(scores)} iterations; "
        f"{cause}; {_consequence(evidence)}"
    )
    return Finding(rank=rank, kind=kind, open=True, sentence=sentence, evidence=evidence)


def closing(kind: Kind, rank: int, scores: Sequence[Score]) -> Finding:
    """A flag closes: the worker keeps up again."""
    evidence = _evidence(kind, scores) | {"window": len(scores)}
    sentence = f"w{rank} keeps up again: {_ratio(kind, evidence)} over the last {len(scores)} iterations"
    return Finding(rank=rank, kind=kind, open=False, sentence=sentence, evidence=evidence)


def forgotten(kind: Kind, rank: int, window: int) -> Finding:
    """A flag closes: there is no evidence any more."""
    sentence = f"w{rank} could not be compared with enough others for {window} iterations: not enough evidence"
    return Finding(rank=rank, kind=kind, open=False, sentence=sentence)


def _evidence(kind: Kind, scores: Sequence[Score]) -> dict[str, Any]:
    """Medians over the window."""
    return {
        "ratio": statistics.median(score.ratio for score in scores),
        "own_s": statistics.median(score.own for score in scores),
        "others_s": statistics.median(score.others for score in scores),
        "per": "sample" if kind == "compute" else "iteration",
    }


def _effect(rank: int, measured: Sequence[Observation]) -> dict[str, Any]:
    """What the last iteration was like for this worker and for the others."""
    own = next(seen for seen in measured if seen.rank == rank)
    others = [seen for seen in measured if seen.rank != rank]
    slowest = max(others, key=lambda seen: (seen.busy_s, -seen.rank))
    return {
        "samples": own.samples,
        "total_samples": sum(seen.samples for seen in measured),
        "busy_s": own.busy_s,
        "typical_busy_s": statistics.median(seen.busy_s for seen in others),
        "slowest_other": slowest.rank,
        "slowest_other_busy_s": slowest.busy_s,
        "cost_s": max(0.0, own.busy_s - slowest.busy_s),
    }


def _consequence(evidence: dict[str, Any]) -> str:
    busy, slowest, typical = evidence["busy_s"], evidence["slowest_other_busy_s"], evidence["typical_busy_s"]
    if busy > HOLDS_UP * slowest:
        return f"all wait for it: busy {seconds(busy)}, the others at most {seconds(slowest)}"
    if busy > HOLDS_UP * typical:
        longest = f"and w{evidence['slowest_other']} {seconds(slowest)}"
        return f"busy {seconds(busy)}, where the others' median is {seconds(typical)} {longest}"
    share = f"{evidence['samples']} of {evidence['total_samples']} samples"
    return f"nobody waits for it with its share of {share}: busy {seconds(busy)}, the others' median {seconds(typical)}"


def _ratio(kind: Kind, evidence: dict[str, Any]) -> str:
    unit = " per sample" if kind == "compute" else ""
    own, others = seconds(evidence["own_s"]), seconds(evidence["others_s"])
    return f"{evidence['ratio']:.1f} times the others' median{unit} ({own} vs {others})"
