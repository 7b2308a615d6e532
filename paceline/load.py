"""Load of this machine, read at most every two seconds from Linux's ``/proc``; zeros on other systems."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

EVERY_S: Final = 2.0
HEAD: Final = 512
"""Number of bytes at the start of each file that contain all required fields."""


class Load:
    """CPU use since the last reading, and memory in use: the GPU's if the script computes on one."""

    def __init__(self, files: Path = Path("/proc")) -> None:
        self._files = files
        self.device: object = None
        """The torch device that the script computes on; None: torch's current one."""
        self._read_s = float("-inf")
        self._ticks = (0, 0)
        self._last: dict[str, float] = {}

    def numbers(self) -> Mapping[str, float]:
        """The machine's measurements, by the names of ``controlplane/protocol/measurements.py``."""
        now_s = time.monotonic()
        if now_s - self._read_s >= EVERY_S:
            self._read_s = now_s
            self._last = {"cpu": self._cpu(), "memory": self._memory()}
        return self._last

    def _cpu(self) -> float:
        try:
            ticks = [int(word) for word in self._read("stat").split(maxsplit=9)[1:9]]
        except (OSError, ValueError):
            return 0.0
        before, self._ticks = self._ticks, (sum(ticks), ticks[3] + ticks[4])
        total, idle = (now - then for now, then in zip(self._ticks, before, strict=True))
        return min(1.0, max(0.0, 1.0 - idle / total)) if total > 0 else 0.0

    def _read(self, name: str) -> str:
        """Read the start of a file with system calls only, which takes a quarter of the time of ``Path``'s methods."""
        file = os.open(f"{self._files}/{name}", os.O_RDONLY)
        try:
            return os.read(file, HEAD).decode()
        finally:
            os.close(file)

    def _memory(self) -> float:
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            free, total = torch.cuda.mem_get_info(self.device)
            return float(1.0 - free / total)
        try:
            lines = self._read("meminfo").splitlines()[:4]
            sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
            return min(1.0, max(0.0, 1.0 - sizes["MemAvailable"] / sizes["MemTotal"]))
        except (OSError, ValueError, KeyError, ZeroDivisionError, IndexError):
            return 0.0
