"""Runs a torchrun script on Ray Train's workers: ``launch.py WORKERS SCRIPT [ARGUMENTS]``.

The script's own ``init_process_group()`` finds its rank, the world size and the first rank's address in the
environment, as under torchrun.
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
        dist.destroy_process_group()  # Ray's process group; the script creates its own
        os.chdir(here)  # Ray starts workers in another folder
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
