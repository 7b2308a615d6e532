import pytest

from controlplane.protocol.spec import Emulation
from workers.emulation import Pace


class Machine:
    """A clock that moves by working and resting."""

    def __init__(self) -> None:
        self.now = 50.0
        self.rests: list[float] = []

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds

    def pace(self, speed: float | None) -> Pace:
        emulation = None if speed is None else Emulation(samples_per_second=speed)
        return Pace(emulation, rest=self.rest, now=lambda: self.now)


@pytest.mark.parametrize(
    ("speed", "samples", "worked_s", "took_s", "overran"),
    [
        pytest.param(100.0, 50, 0.1, 0.5, False, id="a slow machine rests until its time is up"),
        pytest.param(100.0, 50, 0.75, 0.75, True, id="work that took longer is an overrun"),
        pytest.param(100.0, 50, 0.5, 0.5, False, id="just in time"),
        pytest.param(100.0, 0, 0.001, 0.001, False, id="no samples cannot overrun"),
        pytest.param(None, 50, 0.1, 0.1, False, id="no emulation, no rest"),
    ],
)
def test_samples_take_their_time(
    speed: float | None, samples: int, worked_s: float, took_s: float, overran: bool
) -> None:
    machine = Machine()
    pace = machine.pace(speed)
    machine.now += 9.0
    pace.begin()
    machine.now += worked_s
    assert pace.finish(samples) is overran
    assert machine.now == pytest.approx(59.0 + took_s)


def test_each_iteration_is_timed_from_its_own_beginning() -> None:
    machine = Machine()
    pace = machine.pace(10.0)
    for _ in range(3):
        machine.now += 1.0
        pace.begin()
        machine.now += 0.25
        pace.finish(5)
    assert machine.rests == pytest.approx([0.25, 0.25, 0.25])
