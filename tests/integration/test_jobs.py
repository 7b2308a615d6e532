"""Whole jobs on a running control plane: to their end, stopped on the way, and through crashes of its parts."""

import io
import signal
from collections import Counter
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def reports(stack: Stack, job: int) -> Counter[tuple[int, int]]:
    """How often each worker reported each iteration, by the log."""
    said = [row["event"] for row in stack.rows(f"/api/v1/jobs/{job}/events?kind=report&page_size=500")]
    return Counter((event["rank"], event["message"]["iteration"]) for event in said)


def test_a_job_trains_to_its_end_and_its_model_can_be_downloaded(stack: Stack) -> None:
    job = stack.submit(stop={"iterations": 20})["id"]
    done = stack.await_job(job, "succeeded")
    model = eventually(
        lambda: (reply := stack.client.get(f"/api/v1/jobs/{job}/model")).is_success and reply.content, what="the model"
    )
    arrays = np.load(io.BytesIO(model), allow_pickle=False)
    assert (done["iteration"], done["samples"]) == (20, 20 * 64)
    assert {name: arrays[name].shape for name in arrays} == {"linear.weight": (10, 64), "linear.bias": (10,)}


def test_what_processes_log_is_on_the_jobs_page_with_their_level(stack: Stack) -> None:
    job = stack.submit(stop={"iterations": 20})["id"]
    stack.await_job(job, "succeeded")

    def connected() -> set[str]:
        lines = stack.rows(f"/api/v1/jobs/{job}/logs?level=info&text=connected+to+the+control+plane")
        return {line["process"] for line in lines if line["level"] == "info"}

    eventually(lambda: {"w0", "w1", "w2", "w3"} <= connected(), what="the workers' lines")


def test_a_job_that_was_stopped_gives_its_slots_back(stack: Stack) -> None:
    job = stack.submit(stop={"iterations": 100_000})["id"]
    stack.await_iteration(job, 3)
    stack.stop(job)
    eventually(lambda: not any(agent["reserved"] for agent in machines(stack)), what="the slots' release")


def test_a_job_that_does_not_fit_reports_what_it_waits_for(stack: Stack) -> None:
    job = stack.submit(workers=5)["id"]
    waiting = eventually(lambda: stack.job(job)["waiting"], what="a reason")
    stack.stop(job)
    assert "5" in waiting["sentence"]
    assert (waiting["worker_slots"], waiting["machines_matching"]) == (4, 1)


@pytest.mark.parametrize("crashed", ["decisions", "history", "web"])
def test_a_crash_loses_and_doubles_nothing(stack: Stack, crashed: str) -> None:
    job = stack.submit(stop={"iterations": 60}, synchronization={"batching": {"name": "lb-bsp-cpu"}})["id"]
    stack.await_iteration(job, 10)
    stack.kill(crashed)
    stack.restart(crashed)
    eventually(lambda: answers(stack), what="the control plane's return", seconds=60)
    done = stack.await_job(job, "succeeded", seconds=90)
    # What the database did not have yet was said again, so the log may have it twice; rows and sums have it once.
    assert set(reports(stack, job)) == {(rank, k) for rank in range(4) for k in range(60)}
    decisions = stack.rows(f"/api/v1/jobs/{job}/decisions?page_size=500")
    sequences = sorted(row["sequence"] for row in decisions)
    assert len(set(sequences)) == len(sequences)
    assert (done["samples"], done["iteration"]) == (60 * 64, 60)
    rows = stack.ask("GET", f"/api/v1/jobs/{job}/metrics?metric=samples")["series"]
    assert [sum(column) for column in zip(*(row["values"] for row in rows), strict=True)] == [64.0] * 60


def answers(stack: Stack) -> bool:
    try:
        return stack.client.get("/readyz").is_success
    except httpx.TransportError:
        return False


def machines(stack: Stack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.ask("GET", "/api/v1/agents")["results"]
    return found


def test_a_job_without_servers_continues_when_a_worker_is_killed(stack: Stack) -> None:
    choices = {"batching": {"name": "lb-bsp-cpu", "predictor": "ema"}}
    job = stack.submit(communication="all-reduce", servers=0, stop={"iterations": 60}, synchronization=choices)["id"]
    stack.await_iteration(job, 10)
    title = f"pl w1 job {job}"
    children = psutil.Process().children(recursive=True)
    (worker,) = [child for child in children if child.name() == title]
    worker.send_signal(signal.SIGKILL)
    done = stack.await_job(job, "succeeded", seconds=90)
    said = reports(stack, job)
    assert done["iteration"] == 60
    assert {(rank, k) for rank in (0, 2, 3) for k in range(60)} <= set(said)
    assert set(said.values()) == {1}
