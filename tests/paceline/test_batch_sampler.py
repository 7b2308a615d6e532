"""Batches for a DataLoader of the script's own: the same samples as ``pacer.loader`` gives, however they are drawn."""

import copy
import io
from collections import Counter
from itertools import chain
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from controlplane.protocol.messages import IterationReport
from paceline.errors import CannotAttach
from tests.paceline.ranks import alone, paced, run_ranks, shared

SAMPLES = 97


def numbers() -> TensorDataset:
    return TensorDataset(torch.arange(SAMPLES))


def used(pacer: Any, model: nn.Module, batches: Any, *, most: int = 10**9) -> list[list[int]]:
    """The samples of each iteration that the script takes; those that weigh nothing are left out."""
    found: list[list[int]] = []
    for batch in batches:
        numbers = batch if isinstance(batch, list) and isinstance(batch[0], int) else batch[0].tolist()
        model(torch.zeros(1, 1)).sum().backward()
        if pacer._draw.micro == 0:
            found.append([])
        found[-1] += numbers[: pacer._draw.size]
        pacer.step(torch.tensor(0.5))
        if pacer.iteration >= most:
            break
    return found


def begun(rank: int, world: int, schedule: dict[int, Any], **plan: Any) -> tuple[Any, nn.Module, Any]:
    pacer, _ = paced(rank, world, schedule)
    model = pacer.watch(nn.Linear(1, 1))
    pacer._gives_up = False  # no rank trains here
    return pacer, model, pacer.batch_sampler(SAMPLES, batch_size=8, seed=3, **plan)


def each_once(ranks: list[Any], passes: int = 2) -> None:
    for number in range(passes):
        assert Counter(chain(*(chain(*rank[number]) for rank in ranks))) == dict.fromkeys(range(SAMPLES), 1)
        assert len({len(rank[number]) for rank in ranks}) == 1


def moving(rank: int, world: int, workers: int, accumulate: int) -> Any:
    schedule = {2: shared(1, 16, 4, 4), 5: shared(2, 2, 14, 8)} if accumulate == 1 else {1: shared(1, 32, 8, 8)}
    pacer, model, sampler = begun(rank, world, schedule if rank != 1 else {}, accumulate=accumulate)
    loader = DataLoader(numbers(), batch_sampler=sampler, num_workers=workers, persistent_workers=workers > 1)
    return [used(pacer, model, loader) for _ in range(2)]


@pytest.mark.parametrize(("workers", "accumulate"), [(0, 1), (2, 1), (0, 2), (1, 2)])
def test_each_sample_is_taken_once_a_pass_while_shares_change(workers: int, accumulate: int) -> None:
    ranks = run_ranks(moving, 3, workers, accumulate)
    each_once(ranks)
    assert len({len(batch) for batch in ranks[0][0] + ranks[0][1]}) > 1


def by_hand(rank: int, world: int) -> Any:
    pacer, model, sampler = begun(rank, world, {2: shared(1, 16, 4, 4)})
    return [used(pacer, model, sampler) for _ in range(2)]


def test_a_script_may_take_the_indices_itself() -> None:
    each_once(run_ranks(by_hand, 3))


def one_ahead(rank: int, world: int, workers: int, ahead: int) -> Any:
    """A script that fetches further batches while one is trained, as those do that copy to a device meanwhile."""
    pacer, model, sampler = begun(rank, world, {2: shared(1, 16, 4, 4), 4: shared(2, 4, 4, 16)})

    def early(loader: Any) -> Any:
        given, kept = iter(loader), []
        for batch in given:
            kept.append(batch)
            if len(kept) > ahead:
                yield kept.pop(0)
        yield from kept

    passes = []
    for _ in range(2):
        found: list[list[int]] = []
        batches = early(DataLoader(numbers(), batch_sampler=sampler, num_workers=workers))
        batch = next(batches, None)
        while batch is not None:
            model(torch.zeros(1, 1)).sum().backward()
            found.append(batch[0].tolist()[: pacer._draw.size])
            batch = next(batches, None)
            pacer.step()
        passes.append(found)
    return passes


@pytest.mark.parametrize(("workers", "ahead"), [(0, 0), (0, 1), (2, 0), (1, 2)])
def test_batches_may_be_fetched_before_the_step_of_those_before(workers: int, ahead: int) -> None:
    ranks = run_ranks(one_ahead, 3, workers, ahead)
    each_once(ranks)
    assert len({len(batch) for rank in ranks for batch in chain(*rank)}) > 2


def restarted(rank: int, world: int, workers: int) -> Any:
    pacer, model, sampler = begun(rank, world, {1: shared(1, 16, 4, 4)})
    before = used(pacer, model, DataLoader(numbers(), batch_sampler=sampler, num_workers=workers), most=3)
    state = sampler.state_dict()
    pacer, model, sampler = begun(rank, world, {3: shared(2, 4, 4, 16)})
    sampler.load_state_dict(state)
    after = used(pacer, model, DataLoader(numbers(), batch_sampler=sampler, num_workers=workers))
    return [before + after, used(pacer, model, DataLoader(numbers(), batch_sampler=sampler, num_workers=workers))]


@pytest.mark.parametrize("workers", [0, 2])
def test_each_sample_is_taken_once_across_a_restart(workers: int) -> None:
    each_once(run_ranks(restarted, 3, workers))


def breaking(rank: int, world: int, workers: int) -> Any:
    pacer, model, sampler = begun(rank, world, {1: shared(1, 12, 4)})
    loader = DataLoader(numbers(), batch_sampler=sampler, num_workers=workers)
    used(pacer, model, loader, most=2)
    return [used(pacer, model, loader)], pacer.epoch


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_that_the_script_breaks_off_is_followed_by_a_whole_one(workers: int) -> None:
    ranks = run_ranks(breaking, 2, workers)
    each_once([passes for passes, _ in ranks], 1)
    assert [epoch for _, epoch in ranks] == [2, 2]


def test_it_draws_what_the_loader_of_the_same_seed_draws() -> None:
    other = alone(0, 1)
    batches = [batch.tolist() for (batch,) in other.loader(numbers(), 8, seed=3, drop_last=True)]
    sampler = alone(0, 1).batch_sampler(SAMPLES, batch_size=8, seed=3, drop_last=True)
    assert len(sampler) == 12
    assert [*sampler] == batches
    in_order = alone(0, 1).batch_sampler(5, batch_size=2, shuffle=False)
    assert [*in_order] == [[0, 1], [2, 3], [4]]


def stepless(rank: int, world: int, workers: int) -> Any:
    pacer, model, sampler = begun(rank, world, {2: shared(1, 12, 4)})
    loader, sizes = DataLoader(numbers(), batch_sampler=sampler, num_workers=workers), []
    for _ in range(2):
        for (batch,) in loader:
            model(torch.zeros(1, 1)).sum().backward()
            sizes.append(len(batch))
    return sizes, sorted(pacer._logged_sentences)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_script_that_never_calls_step_gets_a_warning_and_equal_shares(workers: int) -> None:
    for sizes, said in run_ranks(stepless, 2, workers):
        assert sizes == ([8] * 6 + [sizes[6]]) * 2
        assert any("batches of a pass were drawn without pacer.step()" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("length", "options", "sentence"),
    [
        (0, {}, "length is 0; give"),
        (numbers(), {}, "length is <torch.* object at .*; give the number of samples: len\\(dataset\\)"),
        (9, {"batch_size": 0}, "batch_size is 0; give a whole number, 1 or more"),
        (9, {"seed": -1}, "seed is -1; give"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_the_cure(length: Any, options: Any, sentence: str) -> None:
    with pytest.raises(CannotAttach, match=sentence):
        alone(0, 1).batch_sampler(length, **options)


class Seconds:
    """A clock that the script moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def stamp(self) -> float:
        return self.now_s

    def happened(self, stamp: Any) -> bool:
        return True

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def number(self, value: Any) -> Any:
        return lambda: float(value)


def test_loading_computing_and_evaluating_are_distinguished() -> None:
    pacer, script = paced(0, 1)
    clock = pacer._clock = Seconds()  # type: ignore[assignment]
    model = pacer.watch(nn.Linear(1, 1))
    for batch in pacer.batch_sampler(40, batch_size=10):
        clock.now_s += 1.0  # its samples are read
        assert len(batch) == 10
        model(torch.zeros(1, 1))
        clock.now_s += 2.0
        pacer.step(0.5)
        with torch.no_grad():
            model.eval()(torch.zeros(1, 1))
        model.train()
        clock.now_s += 4.0
    pacer.close()
    reports = script.all_said(IterationReport)
    assert [(report.data_s, report.compute_s, report.samples) for report in reports] == [(1.0, 2.0, 10)] * 4
    assert [report.outside_s for report in reports] == [0.0, 4.0, 4.0, 4.0]


def test_a_watched_module_is_as_it_was_until_there_is_a_batch_sampler() -> None:
    pacer, model = alone(0, 1), nn.Linear(1, 1)
    assert pacer.watch(model) is model
    assert not model._forward_pre_hooks
    torch.compile(model, fullgraph=True, backend="eager")(torch.ones(1, 1))
    pacer.batch_sampler(SAMPLES)
    later = pacer.watch(nn.Linear(1, 1))
    assert [len(each._forward_pre_hooks) for each in (model, later)] == [1, 1]


def test_a_module_whose_forwards_are_followed_is_saved_and_copied_whole() -> None:
    pacer, model = alone(0, 1), nn.Linear(1, 1)
    pacer.watch(model)
    pacer.batch_sampler(SAMPLES)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for found in (torch.load(file, weights_only=False), copy.deepcopy(model)):
        assert torch.equal(found(torch.ones(1, 1)), model(torch.ones(1, 1)))
