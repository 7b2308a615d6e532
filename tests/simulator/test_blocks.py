"""Servers that close each block of an iteration by itself."""

from typing import Any

import pytest

from controlplane.protocol.spec import Choice, Synchronization
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.network import ServerSpec
from controlplane.simulator.running import simulate
from controlplane.simulator.scenario import Happening, Scenario, check
from tests.simulator.worlds import machines, spec, world

PSLD = Synchronization(placement=Choice(name="psld", parameters={"block_bytes": 4096, "every": 5}))


def by_block(*speeds: float, **changes: Any) -> Scenario:
    """Ten blocks of 4096 bytes on each of two servers; all four workers take 0.4 s for them, each way."""
    fields: dict[str, Any] = {
        "spec": spec(workers=4, servers=2, batch_size=10),
        "groups": machines(*(speeds or [100.0] * 4)),
        "tensor_sizes": (1024,) * 20,
        "servers": ServerSpec(bytes_per_s=409_600.0),
        "policies": {"bsp": Synchronization(placement=Choice(name="psld", parameters={"block_bytes": 4096}))},
        "by_block": True,
    }
    return world(**(fields | changes))


def test_workers_in_step_take_as_long_as_if_servers_closed_whole_iterations() -> None:
    whole = simulate(by_block(by_block=False), "bsp")
    assert simulate(by_block(), "bsp").iteration_s == pytest.approx(whole.iteration_s, rel=0.01)


def test_who_has_pushed_pulls_while_others_push() -> None:
    # Of 0.1 to 0.13 s of computing; both directions of a link are in use at a time.
    speeds = 100.0, 90.0, 80.0, 75.0
    apart, whole = simulate(by_block(*speeds), "bsp"), simulate(by_block(*speeds, by_block=False), "bsp")
    assert (apart.state, apart.updates) == ("succeeded", whole.updates)
    assert apart.iteration_s < 0.85 * whole.iteration_s
    assert apart.iteration_s > 0.4


def test_no_worker_begins_before_all_blocks_are_complete() -> None:
    slow = simulate(by_block(100.0, 100.0, 100.0, 5.0), "bsp")
    # Two seconds of computing, its own push alone, and its pull beside those of the others.
    assert 2.2 < slow.iteration_s < 2.5


def test_blocks_that_move_do_not_stop_a_job() -> None:
    slow = by_block(
        100.0,
        97.0,
        94.0,
        91.0,
        odd_servers={1: ServerSpec(bytes_per_s=40_960.0)},
        policies={"bsp": Synchronization(), "psld": PSLD},
    )
    moved = simulate(slow, "psld")
    assert (moved.state, moved.iterations) == ("succeeded", 40)
    assert moved.moved_bytes > 0
    assert moved.seconds < simulate(slow, "bsp").seconds


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"overlaps": True}, "by_block"),
        ({"servers": ServerSpec()}, "servers.bytes_per_s"),
        ({"policies": {"bsp": Synchronization(barrier=Choice(name="asp"))}}, "policies.bsp.barrier"),
        ({"happenings": (Happening(kind="crash", at_s=5.0, index=0, role="server"),)}, "happenings"),
    ],
)
def test_what_cannot_be_simulated_by_block_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        check(by_block(**changes))
    assert refused.value.field == field
