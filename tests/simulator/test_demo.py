"""The demo's machines, whose figures can be worked out by hand."""

import pytest

from controlplane.simulator.running import simulate
from tests.simulator.worlds import world


def test_uniform_takes_as_long_as_the_slowest_machine() -> None:
    outcome = simulate(world(), "bsp")
    assert outcome.iteration_s == pytest.approx(64 / 250)
    assert outcome.iterations == 40
    assert outcome.updates == 160
    # Busy for 64, 64, 128 and 256 of 256 ms; the 39 waits between iterations count, one after the last does not.
    busy_ms, waits_ms = 40 * 512, 39 * 512
    assert outcome.waiting == pytest.approx(waits_ms / (busy_ms + waits_ms))


def test_lb_bsp_takes_as_long_as_all_machines_together() -> None:
    outcome = simulate(world(), "lb-bsp")
    assert outcome.shares == [93, 93, 47, 23]
    assert outcome.iteration_s == pytest.approx(256 / 2750, rel=0.02)
    assert outcome.updates == simulate(world(), "bsp").updates


def test_an_update_comes_sooner_without_a_barrier() -> None:
    outcome = simulate(world(), "asp")
    # Between two updates of each worker lies its own time; ends are rounded to whole iterations.
    assert outcome.update_s == pytest.approx(64 / 2750, rel=0.05)
