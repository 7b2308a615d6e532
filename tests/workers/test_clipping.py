"""Jobs that clip gradients by their norm, on several real servers: the numbers are those of a single process."""

from typing import Any

import numpy as np
import pytest

from controlplane.core.commands import RefillBlocks, RollBack, SetPlacement
from controlplane.protocol.spec import (
    Choice,
    Elastic,
    Emulation,
    JobSpec,
    LinkEmulation,
    Optimizer,
    Stop,
    Synchronization,
)
from controlplane.protocol.spec import Workload as WorkloadSpec
from controlplane.protocol.training import Clip
from tests.properties.test_training import single_process_run
from tests.workers.driver import Cluster, job_spec
from tests.workers.plane import Plane

WORKERS, BATCH = 3, 16
CLIP = Clip(norm=0.3)
"""Less than any mean gradient of these jobs has."""
SGD = Optimizer(lr=0.5, clip=CLIP)
THIN = 250_000.0
SPEEDS = {rank: Emulation(samples_per_second=speed) for rank, speed in enumerate([2000.0, 1500.0, 1000.0])}


def spec_of(iterations: int, *, servers: int = 3, optimizer: Optimizer = SGD, **changes: Any) -> JobSpec:
    return job_spec(
        workers=WORKERS,
        servers=servers,
        batch_size=BATCH,
        workload=WorkloadSpec(name="mlp", dataset="digits", options={"hidden": [160]}),
        optimizer=optimizer,
        stop=Stop(iterations=iterations),
        **changes,
    )


def assert_same_as_one_process(parameters: Any, spec: JobSpec, iterations: int, tolerance: float = 1e-6) -> None:
    batches = [(k * WORKERS * BATCH, WORKERS * BATCH) for k in range(iterations)]
    np.testing.assert_allclose(parameters, single_process_run(spec, batches), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_servers_clip_by_the_norm_over_all_of_them(servers: int) -> None:
    spec = job_spec(workers=3, servers=servers, optimizer=SGD, batch_size=16)
    schedule = [[16, 16, 16], [40, 1, 7], [0, 24, 24], [16, 30, 2], [16, 16, 16]]
    with Cluster(spec, schedule, block_bytes=400) as cluster:
        cluster.run()
    assert_same_as_one_process(cluster.parameters, spec, 5)


def test_adam_clips_as_one_process_does_but_for_its_own_rounding() -> None:
    optimizer = Optimizer(name="adamw", lr=0.01, clip=CLIP)
    spec = spec_of(12, optimizer=optimizer)
    with Plane(spec) as plane:
        plane.run()
    assert_same_as_one_process(plane.models[0], spec, 12, 1e-4)


def test_blocks_move_under_a_job_that_clips() -> None:
    links = [LinkEmulation(bytes_per_second=speed) for speed in (10 * THIN, 10 * THIN, THIN)]
    chosen = Choice(name="psld", parameters={"block_bytes": 4096, "every": 4, "least_gain_s": 0.0, "probe_every": 2})
    synchronization = Synchronization(placement=chosen)
    spec = spec_of(40, synchronization=synchronization, emulate_servers=links)
    with Plane(spec) as plane:
        plane.run()
    assert len(plane.gave(SetPlacement)) > 1, "blocks moved"
    assert_same_as_one_process(plane.models[0], spec, 40, 1e-5)


def test_servers_are_lost_under_a_job_that_clips_and_are_filled_again() -> None:
    spec = spec_of(40, elastic=Elastic(restarts=10))
    with Plane(spec, emulate=SPEEDS) as plane:
        for server, after in ((1, 15), (0, 40), (2, 60)):
            filled = len(plane.gave(RefillBlocks))
            plane.until(lambda at=after: len(plane.reports()) >= at, "reports")  # type: ignore[misc]
            plane.processes["server", server].link.stop()
            plane.until(lambda before=filled: len(plane.gave(RefillBlocks)) > before, "the refill")  # type: ignore[misc]
        plane.run()
    assert plane.gave(RollBack) == []
    assert_same_as_one_process(plane.models[0], spec, 40, 1e-5)


def test_all_reduce_clips_by_itself() -> None:
    spec = spec_of(8, servers=0, communication="all-reduce")
    with Plane(spec) as plane:
        plane.run()
    assert_same_as_one_process(plane.models[0], spec, 8, 1e-5)


def test_servers_that_only_add_up_leave_clipping_to_workers() -> None:
    spec = spec_of(8, servers=2, server_mode="aggregating", elastic=Elastic(restarts=0))
    with Plane(spec) as plane:
        plane.run()
    assert_same_as_one_process(plane.models[0], spec, 8, 1e-5)
