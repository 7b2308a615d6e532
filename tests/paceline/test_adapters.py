"""The tutorial script of each library, as it is and with Paceline, by the real library on two processes."""

import difflib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack import Stack

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
ADAPTERS = ROOT / ".venv-adapters" / "bin"
LIBRARIES = ("accelerate", "flower", "lightning", "ray_train", "transformers")
MOST_LINES = 3
ITERATIONS = {"flower": 6}
"""Others make four passes over 1,536 samples in batches of 64 or 32."""

RUNS_S = 420.0

with_libraries = pytest.mark.skipif(
    not (ADAPTERS.parent / ".installed").exists(), reason="the adapters' libraries are not installed: make adapters"
)


def changed_lines(library: str) -> int:
    plain, paced = ((EXAMPLES / library / name).read_text().splitlines() for name in ("train.py", "train_paceline.py"))
    return sum(line.startswith("+ ") for line in difflib.ndiff(plain, paced))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_tutorial_needs_few_other_lines(library: str) -> None:
    assert 0 < changed_lines(library) <= MOST_LINES


def command(library: str, script: str) -> list[str]:
    path = str(EXAMPLES / library / script)
    if library in {"accelerate", "transformers"}:
        return [str(ADAPTERS / "torchrun"), "--standalone", "--nproc-per-node", "2", path]
    return [str(ADAPTERS / "python"), path]


def environment(**more: str) -> dict[str, str]:
    quiet = {"RAY_TRAIN_V2_ENABLED": "1", "FLWR_TELEMETRY_ENABLED": "0", "WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "DJANGO_"))}
    return {**kept, **quiet, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def accuracy(words: list[str], **more: str) -> float:
    """What the script says that its model reaches."""
    done = subprocess.run(
        words, env=environment(**more), cwd=ROOT, capture_output=True, text=True, timeout=RUNS_S, check=False
    )
    found = re.findall(r"accuracy (\d\.\d+)", done.stdout + done.stderr)
    assert done.returncode == 0, done.stderr[-3000:]
    assert found, done.stderr[-3000:]
    return float(found[-1])


def paced(stack: Stack, library: str, *options: str, **more: str) -> tuple[float, dict[str, Any]]:
    """The accuracy with Paceline, and the job that it was."""
    name = f"adapter-{library}"
    run = [sys.executable, "-m", "paceline", "run", "--url", stack.url, "--name", name, *options]
    reached = accuracy([*run, "--", *command(library, "train_paceline.py")], PACELINE_API_TOKEN=stack.token, **more)
    jobs = stack.ask("GET", "/api/v1/jobs?page_size=100")["results"]
    job = next(each for each in jobs if each["name"] == name)
    return reached, stack.ask("GET", f"/api/v1/jobs/{job['id']}")


@with_libraries
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_tutorial_trains_as_well_with_paceline_and_every_iteration_is_reported(stack: Stack, library: str) -> None:
    options = ("--workers", "2", *FEDERATION) if library == "flower" else ("--workers", "2")
    plain = accuracy(command(library, "train.py"))
    reached, job = paced(stack, library, *options)
    batch = 32 if library == "transformers" else 64
    assert reached == pytest.approx(plain, abs=0.12)
    assert job["state"] == "succeeded"
    assert job["iteration"] == ITERATIONS.get(library, 4 * 1536 // batch)
    if library != "flower":
        assert job["samples"] == 4 * 1536


@with_libraries
@pytest.mark.integration
@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_slower_rank_of_accelerate_gets_the_smaller_share(stack: Stack) -> None:
    """Each of its samples takes four times as long: 51 of 64 samples are best for the other one."""
    script = str(EXAMPLES / "accelerate" / "train_paceline.py")
    run = [sys.executable, "-m", "paceline", "run", "--url", stack.url, "--name", "accelerate-slowed"]
    slowed = [str(ADAPTERS / "torchrun"), "--standalone", "--nproc-per-node", "2", str(EXAMPLES / "emulate.py")]
    accuracy([*run, "--batching", "lb-bsp-gpu", "--", *slowed, "1000,250", script], PACELINE_API_TOKEN=stack.token)
    (job,) = [each for each in stack.rows("/api/v1/jobs?page_size=100") if each["name"] == "accelerate-slowed"]
    said = [row["event"] for row in stack.rows(f"/api/v1/jobs/{job['id']}/events?kind=report&page_size=500")]
    shares = {(event["rank"], event["message"]["iteration"]): event["message"]["samples"] for event in said}
    assert (shares[0, 0], shares[1, 0]) == (32, 32)
    assert shares[0, 95] + shares[1, 95] == 64
    assert shares[0, 95] > 2 * shares[1, 95]


FEDERATION = ("--batch-size", "640", "--multiple", "20")
"""Flower's clients make 20 local steps of 32 samples a round."""


@with_libraries
@pytest.mark.integration
@pytest.mark.timeout(900)
def test_iterations_are_forwarded_to_trackers_without_another_line(stack: Stack, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("tensorboard", "mlflow", "wandb")}
    for folder in folders.values():
        folder.mkdir()
    options = ["--workers", "2", "--tensorboard", str(folders["tensorboard"]), "--wandb", "digits"]
    options += ["--mlflow", f"sqlite:///{folders['mlflow']}/runs.db"]
    paced(stack, "accelerate", *options, WANDB_DIR=str(folders["wandb"]), WANDB_MODE="offline")
    read = subprocess.run(
        [str(ADAPTERS / "python"), str(Path(__file__).with_name("read_trackers.py")), *map(str, folders.values())],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert read.returncode == 0, read.stderr[-3000:]
    found = json.loads(read.stdout.splitlines()[-1])
    assert found == {"tensorboard": 96, "mlflow": 96, "wandb": 96}


@with_libraries
@pytest.mark.parametrize(
    ("course", "losses", "ended", "sentence"),
    [
        ("returns", [0, 1, 2], ["FINISHED"], ""),
        ("stays", [], [], "3 iterations were not forwarded to http://127.0.0.1"),
    ],
)
def test_training_does_not_wait_for_a_tracking_server_that_does_not_answer(
    course: str, losses: list[int], ended: list[str], sentence: str
) -> None:
    words = [str(ADAPTERS / "python"), str(Path(__file__).with_name("slow_tracker.py")), course]
    done = subprocess.run(
        words, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=RUNS_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [3, losses, ended]
    assert sentence in done.stderr
    assert done.stderr.count("not forwarded") == bool(sentence)


TWO_OPTIMIZERS = """
import torch
from paceline.adapters.accelerate import Accelerator

class Pacer:
    active, steps = True, []
    def step(self, loss): self.steps.append(float(loss))
    def state_dict(self): return {}
    def load_state_dict(self, state): pass

pacer = Pacer()
accelerator = Accelerator(pacer=pacer)
models = [torch.nn.Linear(1, 1, bias=False) for _ in range(2)]
for model in models:
    torch.nn.init.ones_(model.weight)
rates = [0.1, 0.01]
optimizers = [torch.optim.SGD(model.parameters(), rate) for model, rate in zip(models, rates)]
optimizers = [accelerator.prepare(optimizer) for optimizer in optimizers]
for _ in range(2):
    loss = sum(model(torch.ones(1, 1)).sum() for model in models)
    accelerator.backward(loss)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
assert [round(model.weight.item(), 4) for model in models] == [0.8, 0.98], models
assert [round(loss, 4) for loss in pacer.steps] == [2.0, 1.89], pacer.steps
"""


@with_libraries
def test_each_of_two_optimizers_of_accelerate_takes_its_own_step_and_the_last_ends_the_iteration() -> None:
    words = [str(ADAPTERS / "python"), "-c", TWO_OPTIMIZERS]
    done = subprocess.run(
        words, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=RUNS_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@with_libraries
@pytest.mark.parametrize(
    ("version", "end", "finished", "ceiling"), [("v2", "ends", 1, 0), ("v2", "fails", 0, 4), ("v1", "fails", 0, 4)]
)
def test_a_loop_of_ray_that_raises_is_not_reported_as_finished_and_its_memory_limit_is_learned(
    version: str, end: str, finished: int, ceiling: int
) -> None:
    words = [str(ADAPTERS / "python"), str(Path(__file__).with_name("ray_loop.py")), version, end]
    done = subprocess.run(
        words, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=RUNS_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    heard = {"RankHello": 1, "IterationReport": 3, "WorkerFinished": finished}
    assert json.loads(done.stdout.splitlines()[-1]) == [heard, ceiling]
