"""Runs a script as if each rank ran on a machine of a different speed.

Under torchrun: ``emulate.py 1000,1000,500,250 train.py [ARGUMENTS]``, with samples per second by rank. DDP's forward
passes in training take as long as they would on such machines: the real work, then a pause. The script needs no change.
"""

import os
import runpy
import sys
import time
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel


def slow_down(speed: float) -> None:
    """Limit this process to ``speed`` training samples per second."""
    began: list[float] = []

    def before(module: Any, inputs: Any) -> None:
        if isinstance(module, DistributedDataParallel):
            began[:] = [time.perf_counter()]

    def after(module: Any, inputs: Any, output: Any) -> None:
        if isinstance(module, DistributedDataParallel) and torch.is_grad_enabled():
            time.sleep(max(0.0, began[0] + len(inputs[0]) / speed - time.perf_counter()))

    register_module_forward_pre_hook(before)
    register_module_forward_hook(after)


if __name__ == "__main__":
    speeds = [float(speed) for speed in sys.argv[1].split(",")]
    torch.set_num_threads(1)
    slow_down(speeds[int(os.environ["RANK"]) % len(speeds)])
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
