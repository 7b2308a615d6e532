"""Servers die under running jobs that keep no checkpoint: workers fill them again, and the job continues."""

import numpy as np
import pytest

from controlplane.core.commands import RefillBlocks, RollBack
from controlplane.protocol.spec import Choice, Elastic, Emulation, JobSpec, Optimizer, Stop, Synchronization
from controlplane.protocol.spec import Workload as WorkloadSpec
from tests.properties.test_training import single_process_run
from tests.workers.driver import job_spec
from tests.workers.plane import Plane

WORKERS, BATCH, ITERATIONS = 3, 16, 50
SPEEDS = {rank: Emulation(samples_per_second=speed) for rank, speed in enumerate([2000.0, 1500.0, 1000.0])}


def spec_of(*, barrier: str = "bsp", optimizer: Optimizer | None = None) -> JobSpec:
    return job_spec(
        workers=WORKERS,
        servers=2,
        batch_size=BATCH,
        workload=WorkloadSpec(name="mlp", dataset="digits", options={"hidden": [160]}),
        optimizer=optimizer or Optimizer(lr=0.2),
        stop=Stop(iterations=ITERATIONS),
        elastic=Elastic(restarts=10),
        synchronization=Synchronization(barrier=Choice(name=barrier)),
    )


def lose(plane: Plane, *servers: int, after: int) -> None:
    """End servers with all that they hold when so many reports were made, and wait until they are filled again."""
    filled = len(plane.gave(RefillBlocks))
    plane.until(lambda: len(plane.reports()) >= after, "reports")
    for server in servers:
        plane.processes["server", server].link.stop()
    plane.until(lambda: len(plane.gave(RefillBlocks)) > filled, "the refill")


@pytest.mark.parametrize("encrypts", [False, True], ids=["plain", "encrypted"])
def test_synchronous_job_loses_servers_without_a_trace_in_the_numbers(encrypts: bool) -> None:
    with Plane(spec_of(), emulate=SPEEDS, encrypts=encrypts) as plane:
        lose(plane, 1, after=20)
        lose(plane, 0, after=50)
        lose(plane, 0, 1, after=80)
        plane.run()
    assert plane.gave(RollBack) == []
    batches = [(k * WORKERS * BATCH, WORKERS * BATCH) for k in range(ITERATIONS)]
    np.testing.assert_allclose(plane.models[0], single_process_run(plane.spec, batches), rtol=1e-5, atol=1e-5)
    reported = [(rank, report.iteration) for rank, report in plane.reports()]
    assert sorted(reported) == [(rank, k) for rank in range(WORKERS) for k in range(ITERATIONS)]


@pytest.mark.parametrize("barrier", ["ssp", "backup", "aggressive"])
def test_job_under_any_barrier_continues_when_a_server_is_lost(barrier: str) -> None:
    with Plane(spec_of(barrier=barrier), emulate=SPEEDS) as plane:
        lose(plane, 1, after=20)
        plane.run()
    assert plane.gave(RollBack) == []
    assert plane.evaluations()[-1].accuracy > 0.5


def test_the_optimizer_of_a_lost_server_is_reset_and_the_job_continues() -> None:
    with Plane(spec_of(optimizer=Optimizer(name="adam", lr=0.01)), emulate=SPEEDS) as plane:
        lose(plane, 1, after=20)
        plane.run()
    (refill,) = plane.gave(RefillBlocks)
    assert refill.reason.endswith("what adam stored about them is lost")
    assert plane.evaluations()[-1].accuracy > 0.5
