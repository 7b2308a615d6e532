"""Measures float32 matrix products and memory copies, with torch as workers use it."""

import statistics
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.protocol.machine_tests import COMPUTE_S, COPIED_BYTES, GPU_MATRIX, GPUS_S, MATRIX, MEMORY_S
from workers.devices import AUTO, CPU, CUDA, VISIBLE, Gpus

PART_OF_MEMORY: Final = 16
"""At most this fraction (1 / n) of the machine's memory is copied."""

FLOAT_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Speed of all CPUs together, or of one GPU."""

    flops: float
    memory_bytes_per_s: float


def median_rate(amount: float, work: Callable[[], None], seconds: float) -> float:
    """The median rate in ``amount`` per second over rounds of ``work`` within the time limit; at least one round."""
    work()
    rates: list[float] = []
    end_s = time.monotonic() + seconds
    while not rates or time.monotonic() < end_s:
        begin_s = time.monotonic()
        work()
        rates.append(amount / max(1e-9, time.monotonic() - begin_s))
    return statistics.median(rates)


def cpu_speed(torch: Any, *, threads: int, memory_bytes: int) -> Speed:
    """Measure all CPUs that this process may use."""
    torch.set_num_threads(threads)
    copied = min(COPIED_BYTES, memory_bytes // PART_OF_MEMORY)
    return _speed(torch, "cpu", MATRIX, copied, lambda: None)


def gpu_speeds(torch: Any, devices: Sequence[str], environment: MutableMapping[str, str]) -> list[Speed]:
    """Measure each GPU that the machine's workers may use; none if they compute on the CPU."""
    if all(device == CPU for device in devices):
        return []
    named = [device for device in dict.fromkeys(devices) if device not in (AUTO, CPU, CUDA)]
    if named:  # before torch initializes
        found = Gpus.found(environment)
        environment[VISIBLE] = ",".join(map(found.visible, named))
    if not torch.cuda.is_available():
        return []
    count = torch.cuda.device_count()
    part = min(1.0, GPUS_S / max(1e-9, count * (COMPUTE_S + MEMORY_S)))
    return [_gpu_speed(torch, f"cuda:{number}", part) for number in range(count)]


def _gpu_speed(torch: Any, device: str, part: float) -> Speed:
    found = _speed(torch, device, GPU_MATRIX, COPIED_BYTES, lambda: torch.cuda.synchronize(device), part)
    torch.cuda.empty_cache()
    return found


def _speed(torch: Any, device: str, matrix: int, copied: int, wait: Callable[[], None], part: float = 1.0) -> Speed:
    """Measure for ``part`` of the usual time."""
    left, right = (torch.rand((matrix, matrix), device=device) for _ in range(2))
    product = torch.empty_like(left)

    def multiply() -> None:
        torch.mm(left, right, out=product)
        wait()

    flops = median_rate(2.0 * matrix**3, multiply, part * COMPUTE_S)
    source = torch.ones(max(1, copied // FLOAT_BYTES), device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        wait()

    moved = 2.0 * FLOAT_BYTES * source.numel()
    return Speed(flops=flops, memory_bytes_per_s=median_rate(moved, copy, part * MEMORY_S))
