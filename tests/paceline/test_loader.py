"""The same samples: each once a pass, under shares that change, workers that draw ahead, ends, breaks and restarts."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from paceline.errors import CannotAttach, Stopped
from tests.paceline.ranks import alone, paced, run_ranks, shared

SAMPLES = 97


def numbers(count: int = SAMPLES) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def taken(pacer: Any, loader: Any, passes: int, most: int = 10**9) -> list[list[list[int]]]:
    """The samples of each iteration of each pass; those that weigh nothing are left out."""
    found = []
    for _ in range(passes):
        found.append([])
        for (batch,) in loader:
            draw = pacer._draw
            if draw.micro == 0:
                found[-1].append([])
            found[-1][-1] += batch.tolist()[: draw.size]
            pacer.step(torch.tensor(0.5))
            if pacer.iteration >= most:
                return found
    return found


def each_once(ranks: list[list[list[list[int]]]], passes: range = range(2)) -> None:
    for number in passes:
        counted = Counter(sample for rank in ranks for batch in rank[number] for sample in batch)
        assert counted == dict.fromkeys(range(SAMPLES), 1)
        assert len({len(rank[number]) for rank in ranks}) == 1


def moving(rank: int, world: int, workers: int, accumulate: int) -> Any:
    schedule = {2: shared(1, 16, 4, 4), 5: shared(2, 2, 14, 8)} if accumulate == 1 else {1: shared(1, 32, 8, 8)}
    pacer, _ = paced(rank, world, schedule if rank != 1 else {})
    pacer._watched = True
    loader = pacer.loader(numbers(), 8, seed=3, num_workers=workers, accumulate=accumulate)
    return taken(pacer, loader, 2)


@pytest.mark.parametrize(("workers", "accumulate"), [(0, 1), (2, 1), (0, 2), (1, 2)])
def test_each_sample_is_taken_once_a_pass_while_shares_change(workers: int, accumulate: int) -> None:
    ranks = run_ranks(moving, 3, workers, accumulate)
    each_once(ranks)
    assert len({len(batch) for batch in ranks[0][0] + ranks[0][1]}) > 1


def restarted(rank: int, world: int, at: int) -> Any:
    def begun(schedule: dict[int, Any]) -> Any:
        pacer, _ = paced(rank, world, schedule)
        pacer._watched = True
        return pacer, pacer.loader(numbers(), 8, seed=3, num_workers=1)

    pacer, loader = begun({1: shared(1, 16, 4, 4)})
    before = taken(pacer, loader, 2, most=at)
    state = loader.state_dict()
    pacer, loader = begun({3: shared(2, 4, 4, 16)})
    loader.load_state_dict(state)
    epoch = loader.epoch
    after = taken(pacer, loader, 2 - epoch)
    whole = (
        [*before[:epoch], (before[epoch] if len(before) > epoch else []) + after[0], *after[1:]] if after else before
    )
    return whole[:2]


@pytest.mark.parametrize("at", [1, 3, 5, 7])
def test_each_sample_is_taken_once_across_a_restart(at: int) -> None:
    each_once(run_ranks(restarted, 3, at))


def alone_for_a_pass(rank: int, world: int, samples: int) -> Any:
    loader = alone(rank, world).loader(numbers(samples), 8, seed=3)
    return len(loader), [len(batch) for (batch,) in loader]


def test_without_a_control_plane_shares_are_even_as_those_of_a_distributed_sampler() -> None:
    ranks = run_ranks(alone_for_a_pass, 3, SAMPLES)
    assert [length for length, _ in ranks] == [5, 5, 5]
    # One sample is left for the last iteration: two ranks have none, and yield two that weigh nothing.
    assert [sizes for _, sizes in ranks] == [[8, 8, 8, 8, 1], [8, 8, 8, 8, 2], [8, 8, 8, 8, 2]]


def test_one_process_takes_the_passes_of_its_permutation() -> None:
    pacer = alone(0, 1)
    loader = pacer.loader(numbers(), 10, seed=3, drop_last=True)
    found = taken(pacer, loader, 2)
    assert [len(batches) for batches in found] == [9, 9]
    assert found[0] != found[1]
    other = alone(0, 1)
    assert found == taken(other, other.loader(numbers(), 10, seed=3, drop_last=True), 2)


def breaking(rank: int, world: int) -> Any:
    pacer, _ = paced(rank, world, {1: shared(1, 12, 4)})
    pacer._watched = True
    loader, found = pacer.loader(numbers(), 8, num_workers=1), []
    for number in range(3):
        for place, (batch,) in enumerate(loader):
            size = pacer._draw.size
            pacer.step()
            if number < 2 and place == 2:
                break
            if number == 2:
                found += batch.tolist()[:size]
    return found, pacer.epoch


def test_a_pass_that_the_script_breaks_off_is_followed_by_a_whole_one() -> None:
    (first, epoch), (second, _) = run_ranks(breaking, 2)
    assert sorted(first + second) == [*range(SAMPLES)]
    assert epoch == 3


def forgetful(rank: int, world: int) -> Any:
    pacer, script = paced(rank, world, {})
    module = pacer.watch(DistributedDataParallel(nn.Linear(1, 1)))
    for (x,) in pacer.loader(numbers(), 8):
        module(x[:, None].float()).mean().backward()
    pacer.close()
    return len(script.said)


def test_a_script_that_never_calls_step_trains_on() -> None:
    said = run_ranks(forgetful, 2)
    assert said == [1 + 7 + 1] * 2  # hello, a report of each iteration, finished


def stopped(rank: int, world: int) -> Any:
    pacer, script = paced(rank, world, {3: shared(1, 8, 8, stop_at=2)} if rank == 1 else {})
    pacer._watched = True
    try:
        taken(pacer, pacer.loader(numbers(), 8), 9)
    except Stopped as error:
        pacer.close()
        return str(error), [type(message).__name__ for message in script.said]
    return None


def test_all_ranks_are_stopped_at_the_end_of_the_same_iteration() -> None:
    ranks = run_ranks(stopped, 2)
    assert ranks[0] == ranks[1]
    sentence, said = ranks[0]
    assert sentence == "the job was stopped before iteration 4"
    assert said == ["RankHello", *["IterationReport"] * 4, "WorkerFinished"]


def leaving(rank: int, world: int) -> Any:
    """The launcher tells rank 1 as iteration 2 ends."""
    pacer, script = paced(rank, world, {1: shared(1, 12, 4)})
    pacer._watched, pacer._notice = True, lambda: rank == 1 and pacer.iteration >= 3
    try:
        taken(pacer, pacer.loader(numbers(), 8), 9)
    except Stopped as error:
        pacer.close()
        return str(error), error.will_restart, pacer.state_dict(), [type(message).__name__ for message in script.said]
    return None


def test_all_ranks_leave_at_the_same_iteration_where_the_launcher_of_one_announces_it() -> None:
    ranks = run_ranks(leaving, 2)
    assert ranks[0] == ranks[1]
    sentence, will_restart, state, said = ranks[0]
    assert (sentence, will_restart) == ("the launcher stops the ranks before iteration 3 and will restart them", True)
    assert said == ["RankHello", *["IterationReport"] * 3]  # and that it is over is not said: they come back
    assert state["iteration"] == 3


def left_while_paused(rank: int, world: int) -> Any:
    pacer, script = paced(rank, world, {2: shared(1, 8, 8, hold=True)})
    pacer._watched, pacer._notice = True, lambda: rank == 0 and bool(script.said[-1:]) and pacer.iteration >= 2
    try:
        taken(pacer, pacer.loader(numbers(), 8), 1)
    except Stopped as error:
        return error.will_restart
    return None


def test_paused_ranks_leave_as_well() -> None:
    assert run_ranks(left_while_paused, 2) == [True, True]


def paused(rank: int, world: int) -> Any:
    pacer, script = paced(rank, world, {2: shared(1, 8, 8, hold=True)})
    pacer._watched = True
    stood = []

    def newest(script: Any = script) -> Any:
        if script.all_said(type(None)) or pacer.iteration < 2:
            return None
        stood.append(pacer.iteration)
        return shared(2, 8, 8) if len(stood) > 4 else script.schedule[2]

    script.newest = newest  # type: ignore[method-assign]
    taken(pacer, pacer.loader(numbers(), 8), 1)
    return [(type(m).__name__, m.iteration) for m in script.said if type(m).__name__ == "Quiesced"], pacer.iteration


def test_a_pause_stops_all_ranks_at_one_boundary_and_is_reported_once() -> None:
    ranks = run_ranks(paused, 2)
    assert ranks[0] == ranks[1] == ([("Quiesced", 2)], 7)


def differing(rank: int, world: int, what: str) -> Any:
    pacer, _ = paced(rank, world, {})
    pacer._watched = True
    samples = SAMPLES - 7 * rank if what == "samples" else SAMPLES
    loader = pacer.loader(numbers(samples), 8 + rank if what == "batch" else 8, seed=rank if what == "seed" else 1)
    found = taken(pacer, loader, 1)[0]
    return [sample for batch in found for sample in batch], sorted(pacer._logged_sentences), len(found)


@pytest.mark.parametrize(("what", "count"), [("samples", 90), ("batch", 97), ("seed", 97)])
def test_ranks_that_differ_train_on_the_same_iterations_and_report_it(what: str, count: int) -> None:
    (first, said, length), (second, _, other_length) = run_ranks(differing, 2, what)
    assert length == other_length
    assert sorted(first + second) == [*range(count)]
    assert said[0].startswith(f"ranks differ in {what} (rank 0 has ")


def partly_governed(rank: int, world: int) -> list[str]:
    pacer = paced(rank, world, {})[0] if rank == 0 else alone(rank, world)
    taken(pacer, pacer.loader(numbers(), 8), 1)
    return sorted(pacer._logged_sentences)


def test_ranks_that_were_started_without_a_control_plane_are_named() -> None:
    for said in run_ranks(partly_governed, 3):
        (sentence,) = (each for each in said if each.startswith("rank"))
        assert sentence.startswith("ranks 1, 2 without a control plane: 2 of 3 report nothing")


def test_a_dataloader_is_taken_over_with_its_ways() -> None:
    given = DataLoader(numbers(), batch_size=5, shuffle=True, drop_last=True, collate_fn=len)
    loader = alone(0, 1).loader(given, seed=4)
    assert isinstance(loader, DataLoader)
    assert (len(loader), [*loader]) == (19, [5] * 19)
    in_order = alone(0, 1).loader(DataLoader(numbers(7), batch_size=3))
    assert [batch.tolist() for (batch,) in in_order] == [[0, 1, 2], [3, 4, 5], [6]]


class Mine(BatchSampler):
    """A user's own."""


class Hundredfold(DataLoader[Any]):
    """A user's own, which changes each batch."""

    def __iter__(self) -> Any:
        for (batch,) in super().__iter__():
            yield (100 * batch,)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(SAMPLES))


def test_a_loader_that_changes_its_batches_is_given_a_batch_sampler() -> None:
    own = Hundredfold(numbers(), batch_sampler=alone(0, 1).batch_sampler(SAMPLES, batch_size=8, seed=3))
    plain = alone(0, 1).loader(numbers(), 8, seed=3)
    assert [batch.tolist() for (batch,) in own] == [(100 * batch).tolist() for (batch,) in plain]


@pytest.mark.parametrize(
    ("given", "options", "sentence"),
    [
        (numbers(), {"batch_size": 0}, "batch_size is 0; give a whole number, 1 or more"),
        (numbers(), {"accumulate": 1.5}, "accumulate is 1.5; give"),
        (numbers(), {"seed": -1}, "seed is -1; give"),
        (numbers(0), {}, "the dataset is empty"),
        (numbers(), {"sampler": [1]}, "sampler is determined by the shares; omit it"),
        (DataLoader(numbers(), in_order=False), {}, "in_order is False, and batches are weighted by their position"),
        (Hundredfold(numbers()), {}, r"Hundredfold has its own __iter__, .*; create it with batch_sampler=pacer\."),
        (Hundredfold(Stream()), {}, "Hundredfold has its own __iter__, .*; give the data set, and do in the training"),
        (DataLoader(numbers(), batch_sampler=Mine([1], 1, False)), {}, "has its own batch sampler"),
        (DataLoader(numbers(), sampler=WeightedRandomSampler([1.0], 1)), {}, "draws by WeightedRandomSampler"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_the_cure(given: Any, options: Any, sentence: str) -> None:
    with pytest.raises(CannotAttach, match=sentence):
        alone(0, 1).loader(given, **options)


def test_a_state_is_loaded_before_the_first_batch() -> None:
    pacer = alone(0, 1)
    loader = pacer.loader(numbers(), 8)
    taken(pacer, loader, 1, most=2)
    with pytest.raises(CannotAttach, match="load the state before the first"):
        loader.load_state_dict(loader.state_dict())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems hand tensors over in other ways")
@pytest.mark.parametrize("too_long", [False, True])
def test_a_temporary_folder_too_long_for_sockets_is_refused_rather_than_waited_in(
    too_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    folder = short / ("x" * (75 + too_long - len(f"{short}/")))
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    try:
        if too_long:
            assert "AF_UNIX path too long" in socket_of_a_process(folder)
            with pytest.raises(CannotAttach, match=r"path has 76 bytes \(/tmp/.*\); set TMPDIR to one of at most 75"):
                alone(0, 1).loader(numbers(), 8, num_workers=1)
        else:
            assert socket_of_a_process(folder) == ""
            assert len(alone(0, 1).loader(numbers(), 8, num_workers=1)) == 13
        assert len(alone(0, 1).loader(numbers(), 8)) == 13
    finally:
        shutil.rmtree(short)


def socket_of_a_process(folder: Path) -> str:
    """What a process says that makes a socket as a DataLoader's processes do."""
    program = "from multiprocessing.connection import Listener; Listener().close()"
    environment = {**os.environ, "TMPDIR": str(folder)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    return run.stderr
