"""Staleness against its definition, word for word: what a worker had done, less what the slowest had."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.spec import Choice
from controlplane.telemetry.columns import Block
from frontend.queries.staleness import ahead_of


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Some iterations of one worker, some of which may have been left out, and when each ended."""
    iterations = sorted(draw(st.sets(st.integers(0, 12), min_size=1, max_size=8)))
    lengths = [draw(st.integers(1, 5)) for _ in iterations]
    return {
        "iteration": np.array(iterations, np.int64),
        "at_ms": np.cumsum(lengths).astype(np.float64),
        "data_s": np.zeros(len(lengths)),
        "compute_s": np.array([draw(st.integers(0, length)) / 1000 for length in lengths]),
        "push_s": np.zeros(len(iterations)),
        "pull_s": np.zeros(len(iterations)),
    }


def has_done(worker: Block, at_ms: float) -> int:
    """Iterations, by its own count: the number of its first one before that has ended."""
    ended = worker["iteration"][worker["at_ms"] <= at_ms]
    return int(ended[-1]) + 1 if len(ended) else int(worker["iteration"][0])


@given(st.lists(blocks(), min_size=1, max_size=5))
def test_it_is_what_the_slowest_lacked_when_the_worker_began(workers: list[Block]) -> None:
    found = ahead_of(dict(enumerate(workers)), Choice(name="asp"))
    assert {rank: ahead.tolist() for rank, ahead in found.items()} == {
        rank: [
            max(0, iteration - min(has_done(other, at_ms - busy_s * 1000) for other in workers))
            for iteration, at_ms, busy_s in zip(
                worker["iteration"].tolist(), worker["at_ms"].tolist(), worker["compute_s"].tolist(), strict=True
            )
        ]
        for rank, worker in enumerate(workers)
    }


def test_no_one_is_ahead_of_no_one() -> None:
    assert ahead_of({}, Choice(name="asp")) == {}
