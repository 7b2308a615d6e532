"""Exchanges that overlap computing, and servers that share the workers' links."""

from typing import Any

import pytest

from controlplane.protocol.spec import Choice, Synchronization
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.network import Link, ServerSpec
from controlplane.simulator.running import simulate
from controlplane.simulator.scenario import Happening, Scenario, check
from tests.simulator.worlds import machines, spec, world

FAST = 1e9
LIMITED = ServerSpec(bytes_per_s=40_000.0)


def overlapping(workers: int, seconds: float = 1.0, link: float = FAST, **changes: Any) -> Scenario:
    """Each worker computes for that long, and exchanges 4000 bytes with each of two servers, each way."""
    job = spec(workers=workers, servers=2, batch_size=10)
    groups = machines(*[10.0 / seconds] * workers, link=Link(bytes_per_s=link))
    fields: dict[str, Any] = {"spec": job, "groups": groups, "tensor_sizes": (1000, 1000), "servers": LIMITED}
    return world(**(fields | {"overlaps": True, "policies": {"bsp": Synchronization()}} | changes))


def test_what_takes_no_longer_than_computing_costs_nothing() -> None:
    # Four workers share each server's 40,000 bytes per second: 0.4 s each way.
    outcome = simulate(overlapping(4), "bsp")
    assert outcome.iteration_s == pytest.approx(1.0)
    assert outcome.communication == pytest.approx(0.4, rel=0.02)
    assert outcome.compute == pytest.approx(1.0, rel=0.02)


def test_an_iteration_takes_as_long_as_the_slowest_server() -> None:
    outcome = simulate(overlapping(4, odd_servers={1: ServerSpec(bytes_per_s=4_000.0)}), "bsp")
    assert outcome.iteration_s == pytest.approx(4.0)
    assert outcome.communication == pytest.approx(1.0, rel=0.02)


def test_servers_beside_workers_use_their_links_but_not_among_themselves() -> None:
    # Of four workers, the first two have a server. Their links carry: 4000 bytes to the other server, and what three
    # others exchange with their own.
    outcome = simulate(overlapping(4, seconds=0.5, link=8_000.0, servers_beside_workers=True), "bsp")
    assert outcome.iteration_s == pytest.approx((4000 + 3 * 4000) / 8_000.0)
    apart = simulate(overlapping(4, seconds=0.5, link=8_000.0), "bsp")
    assert apart.iteration_s == pytest.approx(8000 / 8_000.0)


def test_blocks_that_move_do_not_stop_a_job_that_overlaps() -> None:
    psld = Synchronization(placement=Choice(name="psld", parameters={"block_bytes": 4096, "every": 5}))
    slow = overlapping(
        4,
        tensor_sizes=(10_240, 10_240),
        servers=ServerSpec(bytes_per_s=400_000.0),
        odd_servers={1: ServerSpec(bytes_per_s=40_000.0)},
        policies={"bsp": Synchronization(), "psld": psld},
    )
    moved = simulate(slow, "psld")
    assert (moved.state, moved.iterations) == ("succeeded", 40)
    assert moved.moved_bytes > 0
    assert moved.seconds < simulate(slow, "bsp").seconds


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"overlaps": False, "servers_beside_workers": True}, "servers_beside_workers"),
        ({"servers": ServerSpec()}, "servers.bytes_per_s"),
        ({"policies": {"bsp": Synchronization(barrier=Choice(name="asp"))}}, "policies.bsp.barrier"),
        ({"happenings": (Happening(kind="crash", at_s=5.0, index=0, role="server"),)}, "spec.checkpoint"),
    ],
)
def test_what_cannot_overlap_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        check(overlapping(4, **changes))
    assert refused.value.field == field
