"""Where iterations become much longer, all ranks make the next exchange of words sooner than it was planned."""

import contextlib
import random
import time
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from controlplane.protocol import agreement
from controlplane.protocol.messages import IterationReport
from paceline import sooner
from paceline.errors import Stopped
from tests.paceline.ranks import paced, run_ranks, shared

SLOW_FROM, HEARD_AT, APART = 8, 10, 60


@pytest.fixture(autouse=True)
def _seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWAITED": 0,
        "AWAITED_AGAIN": 0,
        "FIRST_ROUNDS": 3,
        "ROUND_S": 1e6,
        "MOST_APART": APART,
    }.items():
        monkeypatch.setattr(agreement, name, value)
    monkeypatch.setattr(sooner, "LATE_S", 0.2)
    monkeypatch.setattr(sooner, "LOOKS_S", 0.18)


def trained(rank: int, world: int, every: int, stop_at: int | None, slow_s: float) -> Any:
    """A loop that becomes slow; gradients are summed in each ``every``th iteration only."""
    chance = random.Random(rank)
    orders = shared(1, 20, 12, stop_at=stop_at)
    pacer, script = paced(rank, world, {HEARD_AT: orders} if rank == 1 else {})
    model = pacer.watch(DistributedDataParallel(torch.nn.Linear(1, 1)))
    loader = pacer.loader(torch.utils.data.TensorDataset(torch.ones(32 * 40, 1)), 16, seed=3)
    exchanges, shares = [], []
    with contextlib.suppress(Stopped):
        for (batch,) in loader:
            if pacer._exchange.is_open:
                exchanges.append(pacer.iteration)
            shares.append(pacer.shares)
            is_summed = pacer.iteration % every == every - 1
            with contextlib.nullcontext() if is_summed else model.no_sync():
                loss = model(batch).sum()
                loss.backward()
            if pacer.iteration >= SLOW_FROM:
                time.sleep(slow_s * chance.uniform(0.5, 1.0))
            pacer.step(loss)
    pacer.close()
    return exchanges, shares, [each.iteration for each in script.all_said(IterationReport)]


@pytest.mark.parametrize("every", [1, 3])
def test_a_stop_behind_a_sudden_slow_down_does_not_wait_for_the_planned_exchange(every: int) -> None:
    ranks = run_ranks(trained, 2, every, 0, 0.15)
    assert ranks[0] == ranks[1]
    exchanges, shares, reports = ranks[0]
    assert exchanges[:3] == [0, 1, 2]
    assert len(shares) <= HEARD_AT + 5 * every + 5 < 2 + APART
    assert reports == [*range(len(shares))]


def test_shares_change_at_one_iteration_where_exchanges_come_sooner() -> None:
    ranks = run_ranks(trained, 2, 1, None, 0.04)
    assert ranks[0] == ranks[1]
    exchanges, shares, reports = ranks[0]
    assert len(exchanges) > 4
    assert shares[-1] == (20, 12)
    assert reports == [*range(40)]


def test_a_loop_that_is_not_late_exchanges_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sooner, "LATE_S", 60.0)
    monkeypatch.setattr(sooner, "LOOKS_S", 54.0)
    (exchanges, _, _), _ = run_ranks(trained, 2, 1, None, 0.0)
    assert exchanges == [0, 1, 2]


class Store:
    """A store in which nothing can be left."""

    def compare_set(self, *_: Any) -> Any:
        raise RuntimeError("connection reset")

    check = compare_set


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_does_not_reach_the_store_ends_with_an_error(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setattr(sooner, "LATE_S", -1.0)
    monkeypatch.setattr(sooner, "LOOKS_S", -1.0)
    one = sooner.Sooner(rank, Store())
    one.begin()
    one.end()
    with pytest.raises(RuntimeError, match=f"rank {rank} does not reach the store.*connection reset.*start all ranks"):
        one.is_due()


def done_at_once(state: Any, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A hook behind which a rank does not wait for the others, as the CPU does not for a GPU's sums."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def unawaited(rank: int, world: int) -> Any:
    """Rank 0 is late once, and the other is iterations ahead of it."""
    pacer, _ = paced(rank, world, {})
    model = pacer.watch(DistributedDataParallel(torch.nn.Linear(1, 1)), hook=done_at_once)
    loader = pacer.loader(torch.utils.data.TensorDataset(torch.ones(32 * 70, 1)), 16, seed=3)
    exchanges = []
    for (batch,) in loader:
        if pacer._exchange.is_open:
            exchanges.append(pacer.iteration)
        if rank == 0 and pacer.iteration == 10:
            time.sleep(0.5)
        loss = model(batch).sum()
        loss.backward()
        time.sleep(0.01)
        pacer.step(loss)
    pacer.close()
    return exchanges


def test_ranks_that_do_not_wait_for_sums_of_gradients_exchange_as_planned() -> None:
    ranks = run_ranks(unawaited, 2)
    assert ranks[0] == ranks[1] == [0, 1, 2, 2 + APART]


def mixed(rank: int, world: int) -> Any:
    """One rank's module is where its CPU does not wait for sums."""
    pacer, _ = paced(rank, world, {})
    model = pacer.watch(torch.nn.Linear(1, 1))
    if rank:
        pacer.watch(torch.nn.Linear(1, 1, device="meta"))
    for (batch,) in pacer.loader(torch.utils.data.TensorDataset(torch.ones(64, 1)), 16, seed=3):
        pacer.step(model(batch).sum())
    pacer.close()
    return pacer._awaits_sums, pacer._exchange._sooner._store is None


def test_one_rank_that_does_not_wait_for_sums_decides_for_all() -> None:
    assert run_ranks(mixed, 2) == [(True, True), (False, True)]
