"""Jobs whose blocks move while they train, on real servers: the numbers are those of a single process."""

from typing import Any

import numpy as np
import pytest

from controlplane.core.commands import MeasurePlacement, MoveBlocks, RequestSlot, SetPlacement
from controlplane.core.events import Event, SlotRefused
from controlplane.core.iterations import WARM_UP_REPORTS
from controlplane.protocol.messages import BlocksHanded
from controlplane.protocol.spec import (
    Choice,
    Elastic,
    JobSpec,
    LinkChange,
    LinkEmulation,
    Optimizer,
    Stop,
    Synchronization,
)
from controlplane.protocol.spec import Workload as WorkloadSpec
from tests.properties.test_training import single_process_run
from tests.workers.driver import job_spec
from tests.workers.plane import Plane

WORKERS, BATCH = 2, 16
THIN = 250_000.0
"""Bytes per second: a tenth of what the other servers have, which is emulated as well, and so little that a busy
machine does not matter."""


def spec_of(iterations: int, *, links: list[LinkEmulation], barrier: str = "bsp", **placement: Any) -> JobSpec:
    more = {name: placement.pop(name) for name in ("server_mode", "elastic") if name in placement}
    name = placement.pop("name")
    small = {"least_gain_s": 0.0} if name.startswith("psld") else {}
    chosen = Choice(name=name, parameters={"block_bytes": 4096, "every": 4, **small, **placement})
    return job_spec(
        workers=WORKERS,
        servers=len(links),
        batch_size=BATCH,
        workload=WorkloadSpec(name="mlp", dataset="digits", options={"hidden": [160]}),
        optimizer=Optimizer(lr=0.2, momentum=0.9),
        stop=Stop(iterations=iterations),
        synchronization=Synchronization(barrier=Choice(name=barrier), placement=chosen),
        emulate_servers=links,
        **more,
    )


def links(*speeds: float) -> list[LinkEmulation]:
    return [LinkEmulation(bytes_per_second=speed) for speed in speeds]


def held(plane: Plane, server: int) -> list[int]:
    """How many blocks the server held under each placement."""
    return [sum(b.server == server for b in placed.blocks) for placed in plane.gave(SetPlacement)]


def assert_blocks_left(plane: Plane, server: int) -> None:
    """At some time; how many are there in the end is a matter of what was measured last."""
    counts = held(plane, server)
    assert min(counts) < counts[0], counts


def assert_same_as_one_process(plane: Plane, iterations: int) -> None:
    batches = [(k * WORKERS * BATCH, WORKERS * BATCH) for k in range(iterations)]
    np.testing.assert_allclose(plane.models[0], single_process_run(plane.spec, batches), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("encrypts", [False, True], ids=["plain", "encrypted"])
def test_blocks_leave_a_thin_server_and_a_new_one_joins_without_a_trace_in_the_numbers(encrypts: bool) -> None:
    spec = spec_of(
        50, links=links(10 * THIN, 10 * THIN, THIN), name="psld", scale_threshold=1.0, probe_every=2, forgetting=0.8
    )
    with Plane(spec, encrypts=encrypts) as plane:
        plane.run()
    assert_same_as_one_process(plane, 50)
    assert_blocks_left(plane, 2)
    assert [asked.index for asked in plane.gave(RequestSlot)][:1] == [3]
    assert max(held(plane, 3)) > 0
    assert all(not message.failure for server in range(3) for message in _handed(plane, server))
    assert len(plane.gave(MoveBlocks)) <= len(plane.gave(SetPlacement)) - 1, "each was committed"
    (measured, *_) = plane.gave(MeasurePlacement)
    assert measured.after_s < measured.before_s


def test_without_a_spare_slot_blocks_move_anyway() -> None:
    class Full(Plane):
        def slot_for(self, command: RequestSlot) -> Event:
            return SlotRefused(role=command.role, index=command.index, reason="none is free")

    spec = spec_of(20, links=links(10 * THIN, 10 * THIN, THIN), name="psld", scale_threshold=1.0)
    with Full(spec) as plane:
        plane.run()
    assert_same_as_one_process(plane, 20)
    assert_blocks_left(plane, 2)
    assert {asked.index for asked in plane.gave(RequestSlot)} <= {3}, "none was given, so it is asked for again"


def test_a_server_that_recovers_gets_its_blocks_back() -> None:
    recovers = LinkEmulation(bytes_per_second=THIN, changes=[LinkChange(iteration=16, bytes_per_second=10 * THIN)])
    spec = spec_of(
        60, links=[*links(10 * THIN, 10 * THIN), recovers], name="psld-lpt", probe_every=1, forgetting=0.7, margin=0.1
    )
    with Plane(spec) as plane:
        plane.run()
    assert_same_as_one_process(plane, 60)
    assert_blocks_left(plane, 2)
    counts = held(plane, 2)
    assert max(counts[counts.index(min(counts)) :]) > min(counts), counts


def test_servers_that_only_add_up_give_the_same_numbers_while_blocks_move() -> None:
    spec = spec_of(
        20, links=links(10 * THIN, THIN), name="psld-lpt", server_mode="aggregating", elastic=Elastic(restarts=0)
    )
    with Plane(spec) as plane:
        plane.run()
    assert_same_as_one_process(plane, 20)
    assert_blocks_left(plane, 1)
    steps = {tuple(message.blocks): message.bytes for message in _handed(plane, 1)}
    assert all(size < 4096 * len(blocks) + 500 * len(blocks) for blocks, size in steps.items()), "no optimizer's state"


def test_asynchronous_jobs_move_blocks_as_they_are() -> None:
    spec = spec_of(20, links=links(10 * THIN, THIN), name="psld-lpt", barrier="ssp")
    with Plane(spec) as plane:
        plane.run()
    assert_blocks_left(plane, 1)
    updates = sum(len(plane.said(rank, type(report))) for rank, report in plane.reports()[:1] for rank in range(2))
    assert updates > WARM_UP_REPORTS
    assert sum(report.samples for _, report in plane.reports()) == 20 * WORKERS * BATCH


def _handed(plane: Plane, server: int) -> list[BlocksHanded]:
    handed: list[BlocksHanded] = plane.processes["server", server].link.heard(BlocksHanded)
    return handed
