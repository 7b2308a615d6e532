"""What is measured of CPUs and GPUs, without waiting for seconds."""

from typing import Any

import pytest
import torch

from workers.preflight import computing
from workers.preflight.computing import cpu_speed, gpu_speeds, median_rate


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COMPUTE_S", "MEMORY_S"):
        monkeypatch.setattr(computing, name, 0.0)
    monkeypatch.setattr(computing, "MATRIX", 64)


def test_a_rate_is_the_median_after_a_round_that_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, took = [0.0], iter([100.0, 1.0, 2.0, 4.0])
    monkeypatch.setattr(computing.time, "monotonic", lambda: now[0])

    def work() -> None:
        now[0] += next(took)

    assert median_rate(8.0, work, 6.5) == 4.0


def test_one_round_is_measured_however_long_it_takes() -> None:
    rounds: list[int] = []
    assert median_rate(1.0, lambda: rounds.append(1), 0.0) > 0
    assert len(rounds) == 2


def test_memory_that_is_copied_is_a_part_of_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = torch.ones
    monkeypatch.setattr(torch, "ones", lambda size, **more: asked.append(size) or real(size, **more))
    threads = torch.get_num_threads()
    found = cpu_speed(torch, threads=1, memory_bytes=2**24)
    torch.set_num_threads(threads)
    assert asked == [2**24 // 16 // 4]
    assert found.flops > 0


class Cuda:
    """GPUs that are none: torch computes on the CPU in their place."""

    def __init__(self, count: int) -> None:
        self.count = count

    def is_available(self) -> bool:
        return bool(self.count)

    def device_count(self) -> int:
        return self.count


@pytest.mark.parametrize(("devices", "count"), [(["cpu"], 2), (["auto"], 0)])
def test_gpus_are_left_out_where_workers_use_none(devices: list[str], count: int) -> None:
    fake: Any = type("Torch", (), {"cuda": Cuda(count)})
    assert gpu_speeds(fake, devices, {}) == []


def test_each_gpu_that_workers_use_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(computing, "_gpu_speed", lambda _, device, part: seen.append(device))
    environment = {"CUDA_VISIBLE_DEVICES": "4,5,6"}
    fake: Any = type("Torch", (), {"cuda": Cuda(2)})
    gpu_speeds(fake, ["cuda:0", "cuda:2", "cuda:0"], environment)
    assert (seen, environment) == (["cuda:0", "cuda:1"], {"CUDA_VISIBLE_DEVICES": "4,6"})


@pytest.mark.parametrize(("count", "part"), [(2, 1.0), (8, 0.625)])
def test_many_gpus_share_the_time(monkeypatch: pytest.MonkeyPatch, count: int, part: float) -> None:
    parts: list[float] = []
    monkeypatch.setattr(computing, "COMPUTE_S", 2.0)
    monkeypatch.setattr(computing, "MEMORY_S", 1.0)
    monkeypatch.setattr(computing, "_gpu_speed", lambda _, device, part: parts.append(part))
    fake: Any = type("Torch", (), {"cuda": Cuda(count)})
    gpu_speeds(fake, ["auto"], {})
    assert parts == [part] * count
