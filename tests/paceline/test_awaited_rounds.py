"""While shares settle, ranks exchange their words at the end of each iteration, and know them there."""

from collections import Counter
from typing import Any

import pytest
import torch

from controlplane.protocol import agreement
from controlplane.protocol.messages import IterationReport
from tests.paceline.ranks import paced, run_ranks, shared

SAMPLES = 400


def trained(rank: int, world: int, workers: int, accumulate: int) -> Any:
    schedule = {3: shared(1, 32, 8, 8), 12: shared(2, 8, 32, 8)}
    pacer, script = paced(rank, world, schedule if rank != 1 else {})
    pacer._watched = True
    data = torch.utils.data.TensorDataset(torch.arange(SAMPLES))
    loader = pacer.loader(data, 16 // accumulate, seed=3, num_workers=workers, accumulate=accumulate)
    taken, shares, reported = [], [], []
    for _ in range(3):
        for (batch,) in loader:
            taken += batch.tolist()[: pacer._draw.size]
            if pacer._draw.micro == 0:
                shares.append(pacer.shares)
            pacer.step(0.5)
            if pacer._draw is None:
                reported.append(len(script.all_said(IterationReport)))
    pacer.close()
    reports = [(each.iteration, each.samples) for each in script.all_said(IterationReport)]
    return taken, shares, reported, reports


def test_an_iteration_is_reported_at_its_end_and_orders_hold_from_the_next_one() -> None:
    for _, shares, reported, _ in run_ranks(trained, 3, 0, 1):
        assert shares[2:4] == [(16, 16, 16), (32, 8, 8)]
        assert reported[: agreement.AWAITED] == [*range(1, agreement.AWAITED + 1)]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("awaited", [0, 5, 16])
def test_samples_and_reports_are_whole_whenever_exchanges_move(
    monkeypatch: pytest.MonkeyPatch, awaited: int, workers: int, accumulate: int
) -> None:
    """At the start of an iteration, at its end behind a large change of shares, and back."""
    monkeypatch.setattr(agreement, "AWAITED", awaited)
    monkeypatch.setattr(agreement, "AWAITED_AGAIN", 3)
    ranks = run_ranks(trained, 3, workers, accumulate)
    counted = Counter(sample for rank in ranks for sample in rank[0])
    assert counted == dict.fromkeys(range(SAMPLES), 3)
    for _, shares, _, reports in ranks:
        assert shares == ranks[0][1]
        assert shares[-1] == (8, 32, 8)
        assert [iteration for iteration, _ in reports] == list(range(len(shares)))


def test_behind_a_large_change_iterations_are_reported_at_their_end_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "AWAITED", 0)
    monkeypatch.setattr(agreement, "AWAITED_AGAIN", 3)
    for _, shares, reported, _ in run_ranks(trained, 3, 0, 1):
        assert shares[3:5] == [(16, 16, 16), (32, 8, 8)]
        behind = [at + 1 - count for at, count in enumerate(reported)]
        assert behind[:12] == [1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1]
