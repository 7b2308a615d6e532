"""Loaders of one pacer one after another: each takes its own samples, and keeps its own position."""

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from controlplane.protocol.dividing import Pass
from paceline.errors import CannotAttach
from paceline.samples import Order
from tests.paceline.ranks import alone, paced, run_ranks, shared
from tests.paceline.test_gradients import BATCH, data, model

FIRST, SECOND = 97, 50
"""Samples of the data sets: those of the second begin at 1000."""


def first() -> TensorDataset:
    return TensorDataset(torch.arange(FIRST))


def second(samples: int = SECOND) -> TensorDataset:
    return TensorDataset(torch.arange(1000, 1000 + samples))


def taken(pacer: Any, loader: Any, most: int = 10**9) -> list[int]:
    """The samples of a pass; those that weigh nothing are left out."""
    found: list[int] = []
    for place, (batch,) in enumerate(loader, start=1):
        found += batch.tolist()[: pacer._draw.size]
        pacer.step(torch.tensor(0.5))
        if place == most:
            break
    return found


def phases(rank: int, world: int, workers: int) -> Any:
    """The second phase has other samples, batches, and a seed of its own; then the first one continues."""
    pacer, _ = paced(rank, world, {1: shared(1, 16, 4, 4), 12: shared(2, 4, 4, 16)})
    pacer._watched = True
    loaders = [
        pacer.loader(first(), 8, seed=3, num_workers=workers),
        pacer.loader(second(), 4, seed=5, drop_last=True, num_workers=workers),
    ]
    found, shares = [], []
    for which in (0, 1, 1, 0):
        found.append(taken(pacer, loaders[which]))
        shares.append(pacer.shares)
    return found, shares, [len(loader) for loader in loaders], [loader.epoch for loader in loaders], pacer.iteration


@pytest.mark.parametrize("workers", [0, 1])
def test_each_loader_takes_its_own_samples_in_shares_of_the_same_proportions(workers: int) -> None:
    ranks = run_ranks(phases, 3, workers)
    passes = [sorted(chain(*(rank[0][number] for rank in ranks))) for number in range(4)]
    assert passes[0] == passes[3] == [*range(FIRST)]
    assert all(Counter(each).most_common(1)[0][1] == 1 and len(each) == 48 for each in passes[1:3])
    for found, shares, lengths, epochs, iterations in ranks:
        assert found[0] != found[3]
        assert shares == [(16, 4, 4), (8, 2, 2), (2, 2, 8), (4, 4, 16)]
        assert (lengths, epochs, iterations) == ([5, 4], [2, 2], 18)


PHASES = [(133, BATCH, 4), (60, 2 * BATCH, 6)]
"""Samples, batch size and seed."""


def some(samples: int) -> TensorDataset:
    return TensorDataset(*(tensor[:samples] for tensor in data().tensors))


def trained(rank: int, world: int) -> tuple[list[Any], set[Any]]:
    pacer, _ = paced(rank, world, {1: shared(1, 7, 3, 2), 13: shared(2, 2, 2, 8)})
    module = pacer.watch(DistributedDataParallel(model()))
    optimizer, shares = torch.optim.SGD(module.parameters(), lr=0.05), set()
    for samples, size, seed in PHASES:
        for x, y in pacer.loader(some(samples), size, seed=seed):
            nn.functional.mse_loss(module(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            shares.add(pacer.shares)
            pacer.step()
    return [parameter.detach().numpy() for parameter in module.parameters()], shares


def test_two_phases_of_training_equal_one_process() -> None:
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    for samples, size, seed in PHASES:
        (x, y), whole = some(samples).tensors, Pass(number=0, first=0, samples=samples, batch=3 * size)
        for k in range(whole.iterations):
            chosen = Order(seed=seed, samples=samples).indices(0, whole.span(k))
            nn.functional.mse_loss(module(x[chosen]), y[chosen]).backward()
            optimizer.step()
            optimizer.zero_grad()
    for parameters, shares in run_ranks(trained, 3):
        assert shares >= {(4, 4, 4), (7, 3, 2), (14, 6, 4), (4, 4, 16)}
        for one, other in zip(parameters, module.parameters(), strict=True):
            torch.testing.assert_close(torch.from_numpy(one), other.detach(), rtol=1e-5, atol=1e-5)


def test_a_pass_of_another_loader_within_one_is_refused_and_moves_nothing() -> None:
    pacer = alone(0, 1)
    loader, other = pacer.loader(first(), 10, seed=3), pacer.loader(second(), 10)
    found: list[int] = []
    for place, (batch,) in enumerate(loader):
        found += batch.tolist()
        pacer.step()
        if place == 2:
            state = pacer.state_dict()
            with pytest.raises(CannotAttach, match="over 50 samples would begin within one of another loader"):
                taken(pacer, other)
            assert pacer.state_dict() == state
    assert sorted(found) == [*range(FIRST)]
    assert (pacer.epoch, loader.epoch, other.epoch) == (1, 1, 0)


def of_a_sampler(pacer: Any) -> Any:
    pacer.watch(nn.Linear(1, 1))
    return DataLoader(first(), batch_sampler=pacer.batch_sampler(FIRST, batch_size=10))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(FIRST))


@pytest.mark.parametrize(
    "build",
    [lambda pacer: pacer.loader(first(), 10), of_a_sampler, lambda pacer: pacer.loader(Stream(), 10)],
    ids=["loader", "batch sampler", "stream"],
)
def test_two_passes_at_once_are_refused_however_they_are_drawn(build: Callable[[Any], Any]) -> None:
    pacer = alone(0, 1)
    one, other = build(pacer), pacer.loader(second(), 10)
    with pytest.raises(CannotAttach, match="train on several data sets at once, give it one that joins them"):
        [*zip(one, other, strict=False)]
    with pytest.raises(CannotAttach, match="a pass continues after another one has begun"):
        [next(iter(one)) for _ in one]


def test_a_pass_that_was_left_or_used_up_is_followed_by_one_of_another_loader() -> None:
    pacer = alone(0, 1)
    loader, other = pacer.loader(first(), 10, seed=3), pacer.loader(second(), 10)
    taken(pacer, loader, most=2)
    assert sorted(taken(pacer, other)) == [*range(1000, 1050)]
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)
        pacer.step()
    assert (loader.epoch, sorted(taken(pacer, other))) == (2, [*range(1000, 1050)])


def test_a_loader_that_is_created_again_continues_with_the_next_pass() -> None:
    pacer, _ = paced(0, 1, {})
    once, agreements = [], set()
    for _ in range(2):
        once.append(taken(pacer, pacer.loader(first(), 10, seed=3)))
        agreements.add(id(pacer._agreement))
    other = alone(0, 1)
    loader = other.loader(first(), 10, seed=3)
    assert once == [taken(other, loader) for _ in range(2)]
    assert len(agreements) == 1


def test_a_larger_batch_from_the_second_pass_on_continues_with_the_passes() -> None:
    pacer, other = alone(0, 1), alone(0, 1)
    found = [taken(pacer, pacer.loader(first(), size, seed=3)) for size in (10, 20)]
    loader = other.loader(first(), 10, seed=3)
    assert found == [taken(other, loader) for _ in range(2)]
    assert (pacer.iteration, pacer.epoch) == (10 + 5, 2)


def test_a_state_has_the_positions_of_all_loaders() -> None:
    pacer = alone(0, 1)
    taken(pacer, pacer.loader(first(), 10, seed=3))
    before = taken(pacer, pacer.loader(second(), 10, seed=5), most=2)
    state = pacer.state_dict()
    pacer = alone(0, 1)
    pacer.load_state_dict(state)
    loader, other = pacer.loader(first(), 10, seed=3), pacer.loader(second(), 10, seed=5)
    assert (loader.epoch, other.epoch) == (1, 0)
    assert sorted(before + taken(pacer, other)) == [*range(1000, 1050)]
    assert (len(taken(pacer, loader)), loader.epoch, other.epoch) == (FIRST, 2, 1)
    assert not pacer._logged_sentences


def test_a_state_within_a_pass_of_another_loader_than_the_first_one_is_reported() -> None:
    pacer = alone(0, 1)
    taken(pacer, pacer.loader(first(), 10, seed=3))
    taken(pacer, pacer.loader(second(), 10, seed=5), most=2)
    state = pacer.state_dict()
    pacer = alone(0, 1)
    pacer.load_state_dict(state)
    assert len(taken(pacer, pacer.loader(first(), 10, seed=3))) == FIRST
    assert pacer.epoch == 2
    (sentence,) = pacer._logged_sentences
    assert sentence.startswith("the loaded state has a different number of samples or seed than the loader's 97 and 3")


def governed(rank: int, world: int) -> list[str]:
    pacer, _ = paced(rank, world, {0: shared(1, 8, 8)})
    pacer._watched = True
    for dataset in (first(), second()):
        taken(pacer, pacer.loader(dataset, 8))
    return sorted(pacer._logged_sentences)


def test_the_log_says_what_other_data_means_for_the_job() -> None:
    for (sentence,) in run_ranks(governed, 2):
        assert "other data or another batch size than before: shares keep their proportions" in sentence
