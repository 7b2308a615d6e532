"""What a command line says of its launcher, its script and its ranks."""

import json
import shlex

import pytest

from paceline.cli.launchers import RAY_JOB, for_ray, launcher_of, script_of, world_of


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


def test_ray_hands_on_what_a_job_needs_beside_what_its_entry_point_was_given() -> None:
    given = {"runtime_env": {"working_dir": "gcs://a.zip", "env_vars": {"A": "1"}}, "metadata": {"b": "2"}}
    made = for_ray({"PACELINE_JOB": "7"}, {RAY_JOB: json.dumps(given)})
    assert json.loads(made[RAY_JOB]) == {
        "runtime_env": {
            "working_dir": "gcs://a.zip",
            "env_vars": {"A": "1", "PACELINE_JOB": "7", "PACELINE_LAUNCHER": "ray"},
        },
        "metadata": {"b": "2"},
    }


def test_the_job_is_passed_to_ray_only_where_a_cluster_is_named() -> None:
    assert for_ray({"PACELINE_JOB": "7"}, {}) == {}
    made = for_ray({"PACELINE_JOB": "7"}, {"RAY_ADDRESS": "127.0.0.2:6379"})
    assert json.loads(made[RAY_JOB])["runtime_env"]["env_vars"]["PACELINE_JOB"] == "7"
    assert made["RAY_OVERRIDE_JOB_RUNTIME_ENV"] == "1"
