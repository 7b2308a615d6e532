"""Processes of a running job are killed: the job continues, and they come back."""

import io
import os
import signal
from typing import Any

import numpy as np
import psutil
import pytest

from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def process_of(job: int, title: str) -> psutil.Process:
    """The newest process of that worker or server below this one."""
    name = f"pl {title} job {job}"[:15]
    found = [process for process in psutil.Process().children(recursive=True) if _name_of(process) == name]
    assert found, f"no process is called {name}"
    return max(found, key=lambda process: process.create_time())


def _name_of(process: psutil.Process) -> str:
    """What it is called now; "" if it has just ended."""
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def lives(stack: Stack, job: int, title: str) -> list[dict[str, Any]]:
    """Every life of that process, the oldest first."""
    rows = stack.ask("GET", f"/api/v1/{'workers' if title[0] == 'w' else 'servers'}?job={job}&page_size=200")["results"]
    mine = [row for row in rows if row["index"] == int(title[1:]) and row["job"] == job]
    return sorted(mine, key=lambda row: row["id"])


def test_a_killed_worker_comes_back_and_the_others_continue_meanwhile(stack: Stack) -> None:
    job = stack.submit(stop={"iterations": 300}, emulate=[{"samples_per_second": 400}] * 4)["id"]
    stack.await_iteration(job, 10)
    os.kill(process_of(job, "w1").pid, signal.SIGKILL)
    reached = stack.job(job)["iteration"]
    stack.await_iteration(job, reached + 20)
    died = eventually(lambda: [row for row in lives(stack, job, "w1") if row["state"] == "lost"], what="its death")[0]
    assert died["reason"] == "was ended by signal 9; restart 1 of 3 in 0.5 s"
    back = eventually(lambda: lives(stack, job, "w1")[-1]["counts_from"], what="its return", seconds=60)
    done = stack.await_job(job, "succeeded", seconds=60)
    assert reached < back < 300
    assert (done["iteration"], lives(stack, job, "w1")[-1]["iteration"]) == (300, 299)


def test_a_job_without_checkpoints_outlives_a_killed_server_and_a_worker_that_hangs(stack: Stack) -> None:
    job = stack.submit(stop={"iterations": 200}, emulate=[{"samples_per_second": 400}] * 4)["id"]
    stack.await_iteration(job, 10, seconds=120)
    os.kill(process_of(job, "s1").pid, signal.SIGKILL)
    path = f"/api/v1/jobs/{job}/decisions?kind=refill-blocks"
    (refill,) = eventually(lambda: stack.ask("GET", path)["results"], what="the refill")
    assert "was ended by signal 9; " in refill["reason"]
    stack.await_iteration(job, stack.job(job)["iteration"] + 5)
    stopped = process_of(job, "w2")
    os.kill(stopped.pid, signal.SIGSTOP)
    silent = eventually(lambda: [r for r in lives(stack, job, "w2") if r["state"] == "lost"], what="its death")[0]
    assert silent["reason"].startswith("sent no heartbeat for ")
    assert stack.await_job(job, "succeeded")["iteration"] == 200
    eventually(lambda: not stopped.is_running(), what="the end of the process that hangs", seconds=60)


def model(stack: Stack, job: int) -> dict[str, np.ndarray]:
    """The final parameters."""
    content = eventually(
        lambda: (reply := stack.client.get(f"/api/v1/jobs/{job}/model")).is_success and reply.content, what="the model"
    )
    return dict(np.load(io.BytesIO(content), allow_pickle=False))


def test_a_killed_server_sends_the_job_back_and_the_result_is_the_same(stack: Stack) -> None:
    spec: dict[str, Any] = {
        "stop": {"iterations": 120},
        "checkpoint": {"every": 10},
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
        "synchronization": {"batching": {"name": "uniform"}},
    }
    undisturbed = stack.submit(**spec)["id"]
    stack.await_job(undisturbed, "succeeded")
    job = stack.submit(**spec, emulate=[{"samples_per_second": 400}] * 4)["id"]
    stack.await_iteration(job, 45)
    os.kill(process_of(job, "s1").pid, signal.SIGKILL)
    eventually(lambda: [row for row in lives(stack, job, "s1") if row["state"] == "lost"], what="its death")
    stack.await_job(job, "succeeded", seconds=60)
    (back,) = stack.ask("GET", f"/api/v1/jobs/{job}/decisions?kind=roll-back")["results"]
    assert "are repeated" in back["reason"] or "is repeated" in back["reason"]
    reference, found = model(stack, undisturbed), model(stack, job)
    for name, array in reference.items():
        np.testing.assert_allclose(found[name], array, atol=1e-5)
    more = stack.submit(**(spec | {"stop": {"iterations": 130}}), start_from={"job": job})["id"]
    done = stack.await_job(more, "succeeded", seconds=60)
    assert (done["iteration"], done["samples"]) == (130, 10 * 64)
