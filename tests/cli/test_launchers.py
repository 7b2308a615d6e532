"""What a command line says of its launcher, its script and its ranks."""

import shlex

import pytest

from paceline.cli.launchers import launcher_of, script_of, world_of


@pytest.mark.parametrize(
    ("command", "launcher", "script", "world"),
    [
        ("torchrun --nproc-per-node 4 train.py", "torchrun", "train", 4),
        ("torchrun --nproc_per_node=2 --nnodes=1:3 train.py --nnodes 9", "torchrun", "train", 6),
        ("torchrun --nproc-per-node gpu train.py", "torchrun", "train", None),
        ("torchrun --nproc-per-node", "torchrun", "torchrun", None),
        ("/usr/bin/python3.12 -m torch.distributed.run --nproc-per-node 3 a/b.py", "torchrun", "b", 3),
        ("python -m accelerate.commands.launch x.py", "python", "x", None),
        ("python train.py", "python", "train", None),
        ("accelerate launch --num_processes 8 x.py", "accelerate", "x", 8),
        ("srun -n 16 python train.py", "srun", "train", 16),
        ("srun --ntasks=16 ./train", "srun", "srun", 16),
        ("mpirun -np 0 python train.py", "mpirun", "train", None),
        ("./launch.sh -n 4", "launch.sh", "launch.sh", None),
    ],
)
def test_a_command_is_read(command: str, launcher: str, script: str, world: int | None) -> None:
    words = shlex.split(command)
    assert (launcher_of(words), script_of(words), world_of(words)) == (launcher, script, world)
