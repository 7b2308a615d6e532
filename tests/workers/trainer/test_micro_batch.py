import sys
import threading

import pytest

from workers.trainer.micro_batch import Size, choose, running_s


class Machine:
    """Work that takes a fixed time and some per sample, on a clock of its own."""

    def __init__(self, fixed_s: float, sample_s: float) -> None:
        self.fixed_s, self.sample_s = fixed_s, sample_s
        self.now_s = 0.0

    def work(self, samples: int) -> None:
        self.now_s += self.fixed_s + samples * self.sample_s

    def choose(self, whole: int) -> Size:
        return choose(self.work, whole, now=lambda: self.now_s)


@pytest.mark.parametrize(
    ("fixed_s", "samples"),
    [
        pytest.param(0.0, 1, id="pieces cost nothing"),
        pytest.param(0.1, 16, id="four pieces cost 0.3 of 6.5 more, eight 0.7: too much"),
        pytest.param(1000.0, 64, id="what is fixed is all: no pieces"),
    ],
)
def test_smallest_pieces_that_cost_at_most_a_tenth(fixed_s: float, samples: int) -> None:
    size = Machine(fixed_s, 0.1 if fixed_s < 1 else 1e-6).choose(64)
    assert (size.samples, size.whole) == (samples, 64)
    assert 0.0 <= size.overhead <= 0.1


@pytest.mark.parametrize(
    ("speed", "fixed_s", "samples"),
    [
        pytest.param(400.0, 0.00024, 8, id="20 ms of 8, of which the work is 0.24"),
        pytest.param(100.0, 0.00024, 2, id="20 ms of 2"),
        pytest.param(10.0, 0.00024, 1, id="100 ms of 1"),
        pytest.param(100.0, 0.03, 16, id="160 ms of 16 hold work of 30, 80 of 8 would be hidden by it"),
        pytest.param(400.0, 0.1, 64, id="160 ms that hold 100 of work are no room for pieces"),
    ],
)
def test_on_an_emulated_machine_the_real_work_on_a_piece_is_well_below_its_time(
    speed: float, fixed_s: float, samples: int
) -> None:
    machine = Machine(fixed_s, 0.0)
    size = choose(machine.work, 64, least_s=lambda count: count / speed, now=lambda: machine.now_s)
    assert size == Size(samples=samples, whole=64, overhead=0.0)


def test_share_of_one_is_one_piece() -> None:
    assert Machine(1.0, 1.0).choose(1) == Size(samples=1, whole=1, overhead=0.0)


def test_time_that_a_thread_waits_is_part_of_its_work() -> None:
    """A device, or a module that emulates a slow machine by sleeping, has a thread wait."""
    never = threading.Event()
    assert choose(lambda samples: never.wait(0.002 * samples), 8).samples < 8


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems do not tell how long a thread is queued"
)
def test_the_clock_runs_while_a_thread_waits() -> None:
    began_s = running_s()
    threading.Event().wait(0.02)
    assert running_s() - began_s >= 0.0199
