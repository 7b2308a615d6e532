"""Every barrier carried out by real trainers and servers: the numbers are those of a single process."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from controlplane.core.commands import CutIteration, MoveSplits, NameQuorum, NoteMicroBatch
from controlplane.protocol.spec import Choice, Emulation, JobSpec, Stop, Synchronization, Workload
from tests.workers.driver import job_spec
from tests.workers.plane import Plane
from tests.workers.recording import Recording, recorded, serial_run, synchronous_run
from workers.trainer.micro_batch import Size
from workers.trainer.sampler import PermutationSampler

UNEVEN = {rank: Emulation(samples_per_second=speed) for rank, speed in enumerate([4000.0, 4000.0, 2000.0, 1000.0])}


def spec_of(iterations: int, **choices: Choice) -> JobSpec:
    return job_spec(
        workers=4, batch_size=16, stop=Stop(iterations=iterations), synchronization=Synchronization(**choices)
    )


def choice(name: str, **parameters: Any) -> Choice:
    return Choice(name=name, parameters=parameters)


def makers(plane: Plane, recording: Recording, iterations: int) -> list[list[Any]]:
    """The samples of each iteration, of those who made it."""
    named = {command.iteration: command.ranks for command in plane.gave(NameQuorum)}
    everybody = list(range(plane.spec.workers))
    return [[recording.samples[rank, k] for rank in named.get(k, everybody)] for k in range(iterations)]


def in_pieces() -> AbstractContextManager[Any]:
    """Work that may end early is done two samples at a time: left to themselves, so short shares are one piece each."""
    return patch("workers.trainer.computing.choose", return_value=Size(samples=2, whole=16, overhead=0.05))


def assert_some_ended_early(recording: Recording) -> None:
    """Else an order to stop was never obeyed within an iteration."""
    assert any(0 < len(samples) < 16 for samples in recording.samples.values())


@pytest.mark.parametrize(
    "choices",
    [
        pytest.param({"batching": choice("lb-bsp-cpu", predictor="ema")}, id="lb-bsp"),
        pytest.param({"barrier": choice("aggressive", ratio=0.5)}, id="aggressive"),
        pytest.param({"barrier": choice("backup", backups=1)}, id="backup"),
        pytest.param({"batching": choice("deadline")}, id="deadline"),
        pytest.param({"barrier": choice("aggressive"), "data": choice("rotation", splits=2)}, id="a-bsp rotation"),
        pytest.param({"barrier": choice("aggressive"), "data": choice("exchange", gap=1)}, id="a-bsp exchange"),
        pytest.param({"data": choice("exchange", method="migrate", gap=1)}, id="bsp exchange"),
    ],
)
def test_fifty_synchronous_iterations_equal_those_of_one_process(choices: dict[str, Choice]) -> None:
    spec = spec_of(50, **choices)
    with in_pieces(), recorded() as recording, Plane(spec, emulate=UNEVEN) as plane:
        plane.run()
    expected = synchronous_run(spec, makers(plane, recording, 50))
    np.testing.assert_allclose(plane.models[0], expected, rtol=1e-5, atol=1e-5)
    if choices.get("barrier") == choice("aggressive", ratio=0.5):
        assert len(plane.gave(CutIteration)) > 25
        assert_some_ended_early(recording)
    if choices.get("barrier") == choice("backup", backups=1):
        assert [len(command.ranks) for command in plane.gave(NameQuorum)] == [3] * 50
    if choices.get("batching") == choice("deadline"):
        processed = sum(len(samples) for samples in recording.samples.values())
        assert abs(processed - 50 * spec.global_batch) < 0.1 * 50 * spec.global_batch


@pytest.mark.parametrize("barrier", [choice("aggressive"), choice("asp")], ids=lambda barrier: barrier.name)
def test_a_worker_continues_in_its_own_data_where_it_stopped(barrier: Choice) -> None:
    spec = spec_of(60, barrier=barrier, data=choice("rotation", splits=1))
    with in_pieces(), recorded() as recording, Plane(spec, emulate=UNEVEN) as plane:
        plane.run()
    if barrier.name == "aggressive":
        assert_some_ended_early(recording)
    first_pass = PermutationSampler(seed=spec.seed, sample_count=1437).samples(0, 1437)
    for rank in range(4):
        own = first_pass[1437 * rank // 4 : 1437 * (rank + 1) // 4]
        parts = [recording.samples[update] for update in sorted(recording.samples) if update[0] == rank]
        drawn = np.concatenate(parts)
        np.testing.assert_array_equal(drawn, np.resize(own, len(drawn)))


def test_splits_move_to_faster_workers_and_are_reported() -> None:
    spec = spec_of(30, barrier=choice("aggressive"), data=choice("exchange", splits=8, gap=1))
    slow = {rank: Emulation(samples_per_second=speed) for rank, speed in enumerate([400.0, 400.0, 200.0, 100.0])}
    with Plane(spec, emulate=slow) as plane:
        plane.run()
    moves = [move for command in plane.gave(MoveSplits) for move in command.moves]
    assert moves, "nothing was ever exchanged"
    assert plane.gave(MoveSplits)[0].reason.endswith("they swap places")


@pytest.mark.parametrize(
    "barrier",
    [
        choice("asp"),
        choice("ssp", staleness=2, step_scale=0.5),
        choice("pbsp", sample=2),
        choice("pssp", sample=2, literal=True),
    ],
    ids=lambda barrier: barrier.name,
)
def test_an_asynchronous_run_equals_the_recorded_serial_order_of_the_same_updates(barrier: Choice) -> None:
    spec = spec_of(20, barrier=barrier)
    with recorded() as recording, Plane(spec, emulate=UNEVEN) as plane:
        plane.run()
    reported = {(rank, report.iteration) for rank, report in plane.reports()}
    for steps in recording.steps.values():
        assert sorted(update for step in steps for update in step) == sorted(reported)
    assert sum(len(samples) for samples in recording.samples.values()) == 20 * spec.global_batch
    final, stale = serial_run(spec, recording, barrier.parameters.get("step_scale", 1 / 4))
    np.testing.assert_allclose(plane.models[0], final, rtol=1e-4, atol=1e-5)
    assert stale > 0, "every update was applied to the values that it was computed on: nothing was shown"


def test_stop_order_is_obeyed_within_one_micro_batch() -> None:
    spec = job_spec(
        workers=2,
        batch_size=256,
        workload=Workload(name="cnn"),
        stop=Stop(iterations=6),
        synchronization=Synchronization(barrier=choice("aggressive", ratio=0.5)),
    )
    speeds = {0: Emulation(samples_per_second=2000.0), 1: Emulation(samples_per_second=400.0)}
    size = Size(samples=16, whole=256, overhead=0.05)
    with patch("workers.trainer.computing.choose", return_value=size), Plane(spec, emulate=speeds) as plane:
        plane.run()
    # The fast one needs 0.128 s, in which the slow one does 51: so ratio 0.5 is reached then, give or take one piece.
    cut = [report.samples for rank, report in plane.reports() if rank == 1]
    assert all(count % 16 == 0 for count in cut)
    assert 32 <= min(cut) <= max(cut) < 256
    told = {command.reason for command in plane.gave(NoteMicroBatch)}
    assert "w1 works in micro-batches of 16 samples: 5% longer than 256 at once, as measured" in told
