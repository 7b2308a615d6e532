"""One script, five launchers: torchrun, Ray Train, srun, the pods of an Indexed Job, and Paceline's own agents.

Four emulated machines of 1000, 1000, 500 and 250 samples per second. Every launcher is measured beside the same plain
run under torchrun.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane.api.demo.attached import BATCHING, PACED, PLAIN, POINTS, ScriptRun, examples, torchrun
from controlplane.api.demo.scenarios import SPEEDS
from tests.architecture.sources import ROOT
from tests.deploy import ranks
from tests.support.on_ray import PYTHON
from tests.support.script_agents import POOL, script_agents
from tests.support.slurm_user import User
from tests.support.stack import Stack

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1200)]

log = logging.getLogger(__name__)

EPOCHS = 12
MOST = 0.7
"""Of the plain script's iteration. On a machine without other work it is 0.40 to 0.42 (docs/clusters.md), and
`demo --attached` asks for 0.45. Not here: all ranks of an iteration of 0.2 s compute at the same time, so that other
work on the same cores lengthens it by as much as it takes, while in the plain script's 0.5 s three of four ranks sleep.
Without pacing the ratio is 1, and the shares are asserted by themselves.
"""
PER_EPOCH = 3
EMULATED = ("examples/emulate.py", ",".join(f"{speed:g}" for speed in SPEEDS))
WORLD = len(SPEEDS)
LEARNED = 0.9
Place = tuple[Stack, Path, pytest.FixtureRequest]


def printed(command: list[str], **more: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
    return done.stdout + done.stderr


def read(text: str) -> ScriptRun:
    run = ScriptRun(label="")
    run.read(text)
    assert len(run.epochs) == EPOCHS, text[-5000:]
    return run


def named(stack: Stack, name: str) -> int:
    return next(row["id"] for row in stack.ask("GET", "/api/v1/jobs")["results"] if row["name"] == name)


@pytest.fixture(scope="module")
def plain() -> ScriptRun:
    """The script without Paceline: each machine has as many samples as the others."""
    return read(printed(torchrun(examples() / PLAIN, EPOCHS)))


def by_torchrun(place: Place) -> tuple[int, ScriptRun]:
    stack, _, _ = place
    run = [sys.executable, "-m", "paceline", "run", "--url", stack.url, "--name", "torchrun", "--batching", BATCHING]
    text = printed([*run, "--", *torchrun(examples() / PACED, EPOCHS)], PACELINE_API_TOKEN=stack.token)
    return named(stack, "torchrun"), read(text)


def by_ray_train(place: Place) -> tuple[int, ScriptRun]:
    stack, _, request = place
    cluster = request.getfixturevalue("ray_cluster")
    run = ("run", "--url", stack.url, "--name", "ray", "--workers", str(WORLD), "--batching", BATCHING)
    launch = (str(PYTHON), "examples/ray_train/launch.py", str(WORLD))
    script = (*EMULATED, f"examples/{PACED}", "--epochs", str(EPOCHS))
    text = cluster.paceline(*run, "--", *launch, *script, PACELINE_API_TOKEN=stack.token)
    return named(stack, "ray"), read(text)


def by_srun(place: Place) -> tuple[int, ScriptRun]:
    stack, folder, request = place
    user = User(request.getfixturevalue("slurm_cluster"), stack, folder)
    (folder / "job.yaml").write_text(
        f"name: srun\nlaunch: attached\nworkers: {WORLD}\nsynchronization: {{batching: {BATCHING}}}\n"
    )
    script = [sys.executable, *(str(ROOT / word) if "/" in word else word for word in EMULATED)]
    script += [str(ROOT / "examples" / PACED), "--epochs", str(EPOCHS)]
    sent = user.submit("job.yaml", "--nodes", "2", "--ntasks-per-node", "2", "--", *script)
    stack.await_job(sent.job, "succeeded", seconds=200)
    user.cluster.await_state(sent.slurm, "COMPLETED")
    return sent.job, read(sent.said)


def by_indexed_job(place: Place) -> tuple[int, ScriptRun]:
    stack, folder, _ = place
    pods = ranks.Pods("training", stack, folder, epochs=EPOCHS, batching=BATCHING)
    try:
        text = "".join(pods.wait())
    finally:
        pods.end()
    job: int = pods.job["id"]
    stack.ask("POST", f"/api/v1/jobs/{job}/actions/finish", json={"exit_code": 0})
    return job, read(text)


def by_agents(place: Place) -> tuple[int, ScriptRun]:
    stack, folder, _ = place
    command = ["python", *EMULATED, f"examples/{PACED}", "--epochs", str(EPOCHS)]
    with script_agents(stack, folder, "scripts-0", "scripts-1", slots=2):
        job = stack.ask(
            "POST",
            "/api/v1/jobs",
            json={
                "name": "agents",
                "launch": "attached",
                "command": command,
                "workers": WORLD,
                "labels": dict(POOL),
                "synchronization": {"batching": BATCHING},
            },
        )["id"]
        stack.await_job(job, "succeeded", seconds=200)
        rows = stack.rows(f"/api/v1/jobs/{job}/logs?process=w0&page_size=500")
    return job, read("\n".join(row["text"] for row in reversed(rows)))


@pytest.mark.parametrize("launch", [by_torchrun, by_ray_train, by_srun, by_indexed_job, by_agents])
def test_every_launcher_is_paced_to_the_same_accuracy(
    launch: Callable[[Place], tuple[int, ScriptRun]],
    plain: ScriptRun,
    stack: Stack,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    job, run = launch((stack, tmp_path, request))
    done = stack.await_job(job, "succeeded")
    assert done["workers"] == WORLD
    fast, same, half, quarter = last_shares(stack, job)
    assert min(fast, same) > half > quarter
    assert fast > 2.5 * quarter
    apart = 100 * abs(run.accuracy - plain.accuracy)
    ratio = settled(run) / settled(plain)
    told = f"{launch.__name__}: accuracy {run.accuracy:.4f} beside {plain.accuracy:.4f}, ratio {ratio:.3f}"
    log.info(told)
    assert (run.accuracy > LEARNED, apart <= POINTS, ratio <= MOST) == (True, True, True), told


def settled(run: ScriptRun) -> float:
    """Seconds of an iteration in the best pass of the second half: shares have settled, and others leave the CPU."""
    return min(epoch.iteration_s for epoch in run.epochs[EPOCHS // 2 :])


def last_shares(stack: Stack, job: int) -> list[float]:
    """Samples of each worker in its last whole iterations, by the largest of them."""
    rows: list[dict[str, Any]] = stack.ask("GET", f"/api/v1/jobs/{job}/metrics?metric=samples&points=1000")["series"]
    assert len(rows) == WORLD, rows
    return [max(row["values"][-3 * PER_EPOCH :]) for row in rows]
