"""In a fast loop ranks exchange their words in some iterations only, and agree all the same."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch

from controlplane.protocol import agreement
from controlplane.protocol.messages import IterationReport
from paceline.errors import Stopped
from tests.paceline.ranks import paced, run_ranks, shared

SAMPLES = 397


@pytest.fixture(autouse=True)
def _seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "AWAITED", 0)
    monkeypatch.setattr(agreement, "AWAITED_AGAIN", 0)
    monkeypatch.setattr(agreement, "FIRST_ROUNDS", 3)
    monkeypatch.setattr(agreement, "ROUND_S", 1e6)
    monkeypatch.setattr(agreement, "MOST_APART", 4)


def trained(rank: int, world: int, workers: int, stop_at: int | None) -> Any:
    schedule = {2: shared(1, 16, 4, 4, stop_at=stop_at), 11: shared(2, 2, 14, 8, stop_at=stop_at)}
    pacer, script = paced(rank, world, schedule if rank != 1 else {})
    pacer._watched = True
    loader = pacer.loader(torch.utils.data.TensorDataset(torch.arange(SAMPLES)), 8, seed=3, num_workers=workers)
    rounds, passes, shares, reported = [], [], [], []
    pacer.subscribe(lambda iteration: reported.append((iteration.number, iteration.shares)))
    try:
        for _ in range(2):
            passes.append([])
            for (batch,) in loader:
                passes[-1] += batch.tolist()[: pacer._draw.size]
                shares.append(pacer.shares)
                if pacer._exchange.is_open:
                    rounds.append(pacer.iteration)
                pacer.step(0.5)
    except Stopped:
        pass
    pacer.close()
    assert reported == [*enumerate(shares)], "shares of another iteration"
    return rounds, passes, shares, [(each.iteration, each.samples) for each in script.all_said(IterationReport)]


@pytest.mark.parametrize("workers", [0, 2])
def test_each_sample_is_taken_once_while_shares_change(workers: int) -> None:
    ranks = run_ranks(trained, 3, workers, None)
    for number in range(2):
        counted = Counter(sample for rank in ranks for sample in rank[1][number])
        assert counted == dict.fromkeys(range(SAMPLES), 1)
    rounds, _, shares, _ = ranks[0]
    assert rounds[:4] == [0, 1, 2, 6]
    assert {after - before for before, after in pairwise(rounds[2:])} == {4}
    assert (16, 4, 4) in shares
    assert shares[-1] == (2, 14, 8)
    assert all((rank[0], rank[2]) == (rounds, shares) for rank in ranks)


def test_every_iteration_is_reported_once() -> None:
    for rounds, _, shares, reports in run_ranks(trained, 3, 0, None):
        assert [iteration for iteration, _ in reports] == list(range(len(shares)))
        assert len(rounds) < len(shares) / 3


@pytest.mark.parametrize("stop_at", [9, 10, 11, 12, 13])
def test_all_stop_at_the_requested_iteration(stop_at: int) -> None:
    for _, _, shares, _ in run_ranks(trained, 3, 0, stop_at):
        assert len(shares) == stop_at
