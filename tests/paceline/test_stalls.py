"""A rank whose iteration does not end says so, with where its script is, from the connection's thread."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from controlplane.protocol.messages import Stalled
from paceline import stalls
from tests.paceline.ranks import paced, run_ranks


class Time:
    now_s = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(stalls.time, "perf_counter", lambda: time.now_s)
    return time


def test_an_iteration_that_is_overdue_is_reported_and_reported_again_while_it_lasts(clock: Time) -> None:
    pacer, script = paced(0, 1, {})
    script.beat()
    batches = iter(pacer.loader(range(8), 2, seed=1))
    for _ in range(2):
        next(batches)
        clock.now_s += 2.0
        pacer.step(1.0)
    next(batches)
    for _ in range(90):
        clock.now_s += 1.0
        script.beat()
    said = script.all_said(Stalled)
    assert [(each.iteration, each.place, each.open_s, each.usual_s) for each in said] == [
        (2, "compute", 40.0, 2.0),
        (2, "compute", 60.0, 2.0),
        (2, "compute", 90.0, 2.0),
    ]
    pacer.step(1.0)
    clock.now_s += 60.0
    script.beat()
    assert len(script.all_said(Stalled)) == 3
    pacer.close()


def test_nothing_is_overdue_before_the_first_iteration_and_behind_the_last(clock: Time) -> None:
    pacer, script = paced(0, 1, {})
    clock.now_s += 1000.0
    script.beat()
    for _ in pacer.loader(range(2), 2, seed=1):
        pacer.step(1.0)
    pacer.close()
    clock.now_s += 1000.0
    script.beat()
    assert script.all_said(Stalled) == []


def places(rank: int, world: int) -> list[str | None]:
    pacer, _ = paced(rank, world, {})
    model = pacer.watch(DistributedDataParallel(nn.Linear(4, 1)))
    found = []
    model.register_forward_hook(lambda *_: found.append(pacer._stalls.place))
    for _ in pacer.loader(range(8), 2, seed=1):
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        found.append(pacer._stalls.place)
        pacer.step(loss)
        found.append(pacer._stalls.place)
    pacer.close()
    return found


def test_a_rank_knows_whether_it_computes_or_waits_in_the_sum() -> None:
    for found in run_ranks(places, 2):
        assert found == ["compute", "compute", "outside"] * 2
