"""Traces of shared machines, for emulated machines of real jobs.

Speeds, CPU and memory are those of ``speed_series`` (LB-BSP's cluster B, setting *leftovers*: long tasks of others come
and go, and all of them show), one point each second, faster by a stated factor so that an iteration is short.
"""

import csv
from pathlib import Path
from typing import Final

from benchmarks.offline.speed_series import SETTINGS, generate

POINTS: Final = 400
FASTER: Final = 6.0
"""Machines of 14 to 54 samples per second become ones of 84 to 320."""


def write_traces(folder: Path, *, machines: int, seed: int) -> list[Path]:
    """A CSV file for each machine, as an agent's ``--emulate @FILE`` reads it; the same for the same seed."""
    series = generate(SETTINGS[0], iterations=POINTS, seed=seed, machines=machines)
    paths = []
    for machine in range(machines):
        paths.append(folder / f"machine-{machine}.csv")
        with paths[-1].open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("time", "speed", "cpu", "memory"))
            for second in range(POINTS):
                speed = FASTER * series.speed[second, machine]
                cpu, memory = series.cpu[second, machine], series.memory[second, machine]
                rows.writerow((second, f"{speed:.3f}", f"{cpu:.4f}", f"{memory:.4f}"))
    return paths
