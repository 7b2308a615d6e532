"""The papers' systems end to end with real processes, and a running job that is changed and paused over REST."""

from typing import Any

import pytest

from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LB_BSP = {"batching": {"name": "lb-bsp-cpu", "predictor": "ema"}}
A_BSP = {"barrier": {"name": "aggressive", "ratio": 0.5}, "data": {"name": "exchange"}}
PSP = {"barrier": {"name": "pssp", "sample": 2, "staleness": 2}}


def kinds(stack: Stack, job: int) -> set[str]:
    return {row["kind"] for row in stack.rows(f"/api/v1/jobs/{job}/decisions?page_size=500")}


@pytest.mark.parametrize(
    ("system", "decided"),
    [
        pytest.param(LB_BSP, {"set-shares"}, id="lb-bsp"),
        pytest.param(A_BSP, {"cut-iteration", "partition-data", "note-micro-batch"}, id="a-bsp"),
        pytest.param(PSP, {"hold-worker"}, id="psp"),
    ],
)
def test_a_system_trains_fifty_iterations(stack: Stack, system: dict[str, Any], decided: set[str]) -> None:
    job = stack.submit(stop={"iterations": 50}, synchronization=system)["id"]
    done = stack.await_job(job, "succeeded", seconds=90)
    eventually(lambda: decided <= kinds(stack, job), what=f"decisions {sorted(decided)}")
    assert done["accuracy"] > 0.7
    if system is PSP:
        eventually(lambda: stack.job(job)["samples"] == 50 * 64, what="every sample that was handed out")


def test_a_running_job_is_changed_paused_and_resumed_over_rest(stack: Stack) -> None:
    job = stack.submit(stop={"iterations": 2000})["id"]
    stack.await_iteration(job, 5)

    def change(**choices: Any) -> None:
        address = f"/api/v1/jobs/{job}/policy"
        etag = stack.client.get(address).headers["ETag"]
        reply = stack.client.patch(address, json=choices, headers={"If-Match": etag})
        assert reply.status_code == 202, reply.text
        eventually(lambda: stack.ask("GET", address)["pending"] == {}, what="the change's effect")

    for barrier in ("asp", "bsp", "aggressive"):
        change(barrier=barrier)
    stack.ask("POST", f"/api/v1/jobs/{job}/actions/pause")
    eventually(lambda: stack.job(job)["awaited"] == "an operator to resume it", what="everybody stands")
    stood = stack.job(job)["iteration"]
    stack.ask("POST", f"/api/v1/jobs/{job}/actions/resume")
    eventually(lambda: stack.job(job)["iteration"] > stood + 5, what="the job goes on")
    changes = stack.rows(f"/api/v1/jobs/{job}/decisions?kind=change-policies")
    assert len(changes) == 3
    assert all("requested by" in row["reason"] for row in changes)
    stack.stop(job)
