"""Jobs that keep checkpoints on disks that fill up, and on machines that do not share them."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from controlplane.core.commands import KeepCheckpoint
from controlplane.core.events import ResumeRequested
from controlplane.core.states import JobState
from controlplane.protocol.spec import Checkpointing, Emulation, JobSpec, Optimizer, Stop
from controlplane.protocol.spec import Workload as WorkloadSpec
from tests.properties.test_training import single_process_run
from tests.workers.driver import DEADLINE_S, job_spec
from tests.workers.plane import Plane
from workers.server import common_folder

WORKERS, BATCH, ITERATIONS = 2, 16, 60
SPEEDS = dict.fromkeys(range(WORKERS), Emulation(samples_per_second=800.0))
ROOM = 32 * 1024
"""Bytes of a file: less than the larger block has, more than any log of a test."""


def spec_of(*, servers: int = 1, stop: Stop | None = None) -> JobSpec:
    return job_spec(
        workers=WORKERS,
        servers=servers,
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


def test_job_pauses_where_a_checkpoint_cannot_be_written_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
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
    batches = [(k * WORKERS * BATCH, WORKERS * BATCH) for k in range(ITERATIONS)]
    np.testing.assert_allclose(plane.models[0], single_process_run(plane.spec, batches), rtol=1e-5, atol=1e-5)
    assert plane.gave(KeepCheckpoint) != []


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
