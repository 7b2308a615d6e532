"""Runs a script for torchrun on Ray Train's workers: ``launch.py WORKERS SCRIPT [ARGUMENTS]``.

The script's own ``init_process_group()`` finds rank, world and the first rank's address in its environment, as it does
under torchrun.
"""

import os
import runpy
import sys
import tempfile
from pathlib import Path

import torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def main() -> None:
    """Start the workers, and wait for them."""
    workers, script, *arguments = sys.argv[1:]
    path, here = str(Path(script).resolve()), Path.cwd()

    def train() -> None:
        dist.destroy_process_group()  # Ray's, whose place the script's takes
        os.chdir(here)  # Ray's workers are in a folder of their own
        sys.argv = [path, *arguments]
        sys.path.insert(0, str(Path(path).parent))
        runpy.run_path(path, run_name="__main__")

    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            train,
            scaling_config=ScalingConfig(num_workers=int(workers), placement_strategy="SPREAD"),
            run_config=RunConfig(storage_path=folder),
        ).fit()


if __name__ == "__main__":
    main()
