"""Work that does not fit into memory is done in smaller pieces, from its beginning."""

import numpy as np
import pytest
import torch

from workers.workloads.memory import Pieces


class Device:
    """Holds ``capacity`` samples; what was added stays until a new beginning."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.total, self.tried = capacity, 0, [0]

    def begin(self) -> None:
        self.total = 0

    def add(self, samples: np.ndarray) -> float:
        self.tried.append(len(samples))
        self.total += int(samples.sum())
        if len(samples) > self.capacity:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return float(len(samples))


def test_the_whole_is_done_in_halves_until_they_fit_and_remembered() -> None:
    device, released = Device(30), [0]
    pieces = Pieces(release=lambda: released.append(1))
    samples = np.arange(100)
    assert pieces.run(samples, device.begin, device.add) == 100.0
    assert (device.total, pieces.limit, sum(released)) == (4950, 25, 2)
    device.tried.clear()
    pieces.run(samples, device.begin, device.add)
    assert device.tried == [25] * 4


def test_where_one_sample_does_not_fit_the_error_is_raised() -> None:
    device = Device(0)
    with pytest.raises(torch.OutOfMemoryError):
        Pieces().run(np.arange(4), device.begin, device.add)


def test_without_shortage_all_is_done_at_once() -> None:
    device = Device(1000)
    Pieces().run(np.arange(70), device.begin, device.add)
    assert device.tried == [0, 70]
