"""Jobs that keep checkpoints on disks that fill up, and on machines that do not share them."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.core.commands import KeepCheckpoint, RollBack, SetRoster
from controlplane.core.events import ResumeRequested
from controlplane.core.states import JobState
from controlplane.protocol.spec import Checkpointing, Emulation, JobSpec, Optimizer, StartFrom, Stop
from controlplane.protocol.spec import Workload as WorkloadSpec
from tests.properties.test_training import single_process_run
from tests.workers.driver import DEADLINE_S, job_spec
from tests.workers.plane import Plane
from workers.checkpoints import common_folder
from workers.trainer import checkpointing

WORKERS, BATCH, ITERATIONS = 2, 16, 60
SPEEDS = dict.fromkeys(range(WORKERS), Emulation(samples_per_second=800.0))
SLOW = dict.fromkeys(range(WORKERS), Emulation(samples_per_second=300.0))
"""Still under way for seconds when the first checkpoint is written."""
ROOM = 32 * 1024
"""Bytes of a file: less than the larger block has, more than any log of a test."""


def spec_of(*, servers: int = 1, stop: Stop | None = None, **changes: Any) -> JobSpec:
    return job_spec(
        workers=WORKERS,
        servers=servers,
        **changes,
        batch_size=BATCH,
        workload=WorkloadSpec(name="mlp", dataset="digits", options={"hidden": [160]}),
        optimizer=Optimizer(lr=0.2, momentum=0.9),
        checkpoint=Checkpointing(every=10),
        stop=stop or Stop(iterations=ITERATIONS),
    )


@contextmanager
def no_room_for_files_over(size: int) -> Iterator[None]:
    """The operating system refuses to write more than that into one file of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_job_pauses_where_a_checkpoint_cannot_be_written_and_continues_when_there_is_room(tmp_path: Path) -> None:
    with Plane(spec_of(), emulate=SPEEDS, checkpoint_dirs={0: tmp_path}) as plane:
        with no_room_for_files_over(ROOM):
            plane.until(lambda: plane.state is JobState.PAUSED, "the pause")
        (reason,) = plane.engine._job.pauses.values()
        assert reason == (
            f"s0: the checkpoint of iteration 10 cannot be written to {tmp_path / 'job-1'}: File too large"
        )
        assert plane.gave(KeepCheckpoint) == []
        plane.tell(ResumeRequested(actor="ada"))
        plane.run()
    assert_same_as_one_process(plane)


def test_job_whose_servers_do_not_share_their_folder_ends_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common_folder, "WAIT_S", 0.2)
    spec = spec_of(servers=2, stop=Stop(seconds=DEADLINE_S))
    with Plane(spec, checkpoint_dirs={0: tmp_path / "a", 1: tmp_path / "b"}) as plane:
        with plane.changed:
            assert plane.changed.wait_for(lambda: plane.failed or plane.state is JobState.SUCCEEDED, DEADLINE_S)
        assert "is not that of s" in plane.failed
        assert "the same shared folder with --checkpoint-dir" in plane.failed


def test_all_reduce_job_whose_workers_all_die_continues_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "PIECE_ELEMENTS", 5_000)
    with Plane(spec_of(servers=0, communication="all-reduce"), emulate=SLOW, checkpoint_dirs=here(tmp_path)) as plane:
        plane.until(lambda: plane.gave(KeepCheckpoint) != [], "a checkpoint")
        for rank in range(WORKERS):
            plane.processes["worker", rank].link.stop()
        plane.run()
    (back,) = plane.gave(RollBack)
    assert back.to_iteration >= 10
    assert_same_as_one_process(plane)
    assert len([*(tmp_path / "job-1").glob("*/block-*.bin")]) >= 2 * 3, "a checkpoint is of several pieces"


def test_servers_that_only_add_up_are_replaced_and_the_workers_continue_from_their_checkpoint(tmp_path: Path) -> None:
    with Plane(spec_of(server_mode="aggregating"), emulate=SLOW, checkpoint_dirs=here(tmp_path)) as plane:
        plane.until(lambda: plane.gave(KeepCheckpoint) != [], "a checkpoint")
        plane.processes["server", 0].link.stop()
        plane.run()
    (back,) = plane.gave(RollBack)
    assert back.to_iteration >= 10
    assert_same_as_one_process(plane)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"servers": 0, "communication": "all-reduce"}, {"servers": 2}),
        ({"servers": 1}, {"servers": 0, "communication": "all-reduce"}),
        ({"servers": 2}, {"servers": 1, "server_mode": "aggregating"}),
    ],
)
def test_new_job_of_another_kind_starts_from_what_an_older_one_kept(
    first: dict[str, Any], second: dict[str, Any], tmp_path: Path
) -> None:
    with Plane(spec_of(stop=Stop(iterations=59), **first), emulate=SLOW, checkpoint_dirs=here(tmp_path)) as plane:
        plane.until(lambda: plane.gave(KeepCheckpoint) != [], "a checkpoint")
    with Plane(spec_of(start_from=StartFrom(job=1), **second), checkpoint_dirs=here(tmp_path), number=2) as plane:
        plane.run()
    started = plane.gave(SetRoster)[0].first_iteration
    assert started >= 10
    assert_same_as_one_process(plane)


def here(folder: Path) -> dict[int, Path]:
    """The same folder for all."""
    return dict.fromkeys(range(WORKERS), folder)


def assert_same_as_one_process(plane: Plane) -> None:
    """In all that a job leaves: the model, and the checkpoint of its last iteration."""
    assert plane.gave(KeepCheckpoint)[-1].iteration == ITERATIONS
    batches = [(k * WORKERS * BATCH, WORKERS * BATCH) for k in range(ITERATIONS)]
    np.testing.assert_allclose(plane.models[-1], single_process_run(plane.spec, batches), rtol=1e-5, atol=1e-5)
