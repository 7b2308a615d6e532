"""Streams: each sample of each rank's once a pass, whatever the shares, however unlike the streams' lengths."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tests.paceline.ranks import alone, paced, run_ranks, shared


class Stream(IterableDataset[int]):
    """Numbers of one rank; each worker of its loader has its own part."""

    def __init__(self, rank: int, length: int) -> None:
        self._rank, self._length = rank, length

    def __iter__(self) -> Iterator[int]:
        about = get_worker_info()
        part, parts = (about.id, about.num_workers) if about else (0, 1)
        return iter(range(1000 * self._rank + part, 1000 * self._rank + self._length, parts))


LENGTHS = [90, 41, 64]


def taken(pacer: Any, loader: Any, passes: int, most: int = 10**9) -> list[list[list[int]]]:
    found: list[list[list[int]]] = []
    for _ in range(passes):
        found.append([])
        for batch in loader:
            assert len(batch) > 0
            found[-1].append(batch.tolist()[: pacer._draw.size])
            pacer.step(torch.tensor(0.0))
            if pacer.iteration >= most:
                return found
    return found


def streamed(rank: int, world: int, workers: int, accumulate: int) -> Any:
    unit = accumulate
    pacer, _ = paced(rank, world, {1: shared(1, 14 * unit, 4 * unit, 6 * unit)} if rank == 2 else {})
    pacer._watched = True
    loader = pacer.loader(Stream(rank, LENGTHS[rank]), 8, num_workers=workers, accumulate=accumulate)
    assert isinstance(loader, DataLoader)
    return taken(pacer, loader, 2)


@pytest.mark.parametrize(("workers", "accumulate"), [(0, 1), (2, 1), (0, 2)])
def test_each_sample_is_taken_once_a_pass_and_all_ranks_yield_equally_many_batches(
    workers: int, accumulate: int
) -> None:
    ranks = run_ranks(streamed, 3, workers, accumulate)
    for number in range(2):
        counted = Counter(sample for rank in ranks for batch in rank[number] for sample in batch)
        expected = [1000 * rank + sample for rank, length in enumerate(LENGTHS) for sample in range(length)]
        assert counted == dict.fromkeys(expected, 1)
        assert len({len(rank[number]) for rank in ranks}) == 1
    assert len({len(batch) for batch in ranks[0][0]}) > 1


def restarted(rank: int, world: int, workers: int) -> Any:
    def begun() -> Any:
        pacer, _ = paced(rank, world, {})
        pacer._watched = True
        return pacer, pacer.loader(Stream(rank, LENGTHS[rank]), 8, num_workers=workers)

    pacer, loader = begun()
    before = taken(pacer, loader, 1, most=4)[0]
    state = pacer.state_dict()
    pacer, loader = begun()
    pacer.load_state_dict(state)
    return before + taken(pacer, loader, 1)[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_each_sample_is_taken_once_across_a_restart(workers: int) -> None:
    ranks = run_ranks(restarted, 3, workers)
    counted = Counter(sample for rank in ranks for batch in rank for sample in batch)
    assert set(counted.values()) == {1}
    assert len(counted) == sum(LENGTHS)


def resumed(rank: int, world: int, state: Any, most: int) -> Any:
    pacer, _ = paced(rank, world, {})
    pacer._watched = True
    if state:
        pacer.load_state_dict(state)
    found = taken(pacer, pacer.loader(Stream(rank, 24), 4), 1, most=most)[0]
    return sum(map(len, found)), pacer.state_dict(), sorted(pacer._logged_sentences)


def test_a_state_of_another_number_of_ranks_begins_the_pass_anew_with_a_warning() -> None:
    state = run_ranks(resumed, 2, None, 3)[0][1]
    for count, after, said in run_ranks(resumed, 3, state, 10**9):
        assert (count, after["iteration"], after["pass"]) == (24, 3 + 6, 1)
        assert said == [
            "the loaded state has positions in the streams of 2 ranks, and there are 3: pass 0 begins anew, and repeats"
            " samples; resume with the same number of ranks"
        ]
    assert [(count, said) for count, _, said in run_ranks(resumed, 2, state, 10**9)] == [(12, [])] * 2


def rejoined(rank: int, world: int) -> Any:
    pacer, _ = paced(rank, world, {0: shared(1, 4, 4, share_from=3, begins=24)})
    pacer._watched = True
    found = taken(pacer, pacer.loader(Stream(rank, 24), 4), 1)[0]
    return sum(map(len, found)), pacer.iteration, sorted(pacer._logged_sentences)


def test_a_restart_without_a_state_begins_the_pass_anew_with_a_warning() -> None:
    for count, iteration, (sentence,) in run_ranks(rejoined, 2):
        assert (count, iteration) == (24, 3 + 6)
        assert sentence.startswith("the job continues with iteration 3, but the position in streams is not known")


def empty(rank: int, world: int) -> str:
    pacer = alone(rank, world)
    try:
        taken(pacer, pacer.loader(Stream(rank, 5 * (1 - rank)), 8), 1)
    except ValueError as error:
        return str(error)
    return ""


def test_all_ranks_learn_that_a_rank_has_no_sample() -> None:
    assert run_ranks(empty, 2) == ["the streams of ranks 1 have no sample: give each rank some"] * 2


def one_ahead(rank: int, world: int) -> tuple[bool, set[tuple[int, ...]]]:
    pacer, _ = paced(rank, world, {1: shared(1, 14, 2)})
    module = pacer.watch(DistributedDataParallel(nn.Linear(1, 1)))
    given, shares = iter(pacer.loader(Stream(rank, 40), 8)), set()
    held = next(given)
    for following in given:
        module(held[:, None].float()).mean().backward()
        pacer.step()
        shares.add(pacer.shares)
        held = following
    return pacer._gives_up, shares


def test_shares_stay_even_where_batches_of_a_stream_are_taken_ahead() -> None:
    assert run_ranks(one_ahead, 2) == [(True, {(8, 8)})] * 2
