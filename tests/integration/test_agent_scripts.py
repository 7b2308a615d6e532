"""Scripts that Paceline's own agents start, on a whole control plane: to the end, stopped, and with a lost machine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.runtime.embedded.processes import Service
from tests.support.attached_script import STOPPED
from tests.support.script_agents import POOL, script_agents
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

EPOCHS = 3
ITERATIONS = 40


@pytest.fixture(scope="module")
def agents(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Service]]:
    """Three machines of one slot each: a job of two ranks takes the first two."""
    with script_agents(stack, tmp_path_factory.mktemp("agents"), "one", "two", "three") as running:
        yield running


def submit(stack: Stack, *command: str, **more: Any) -> int:
    document = {"name": "script", "launch": "attached", "workers": 2, "command": command, "labels": dict(POOL)}
    number: int = stack.ask("POST", "/api/v1/jobs", json=document | more)["id"]
    return number


def attached_script(stack: Stack, folder: Path, options: dict[str, Any], **more: Any) -> int:
    """A job of the script that records its iterations in ``folder``."""
    told = json.dumps({"folder": str(folder), "deadline_s": 300} | options)
    return submit(stack, "env", f"SCRIPT={told}", "python", "-m", "tests.support.attached_script", **more)


def lines(folder: Path, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"rank-{rank}.jsonl").read_text().splitlines()]


def log_of(stack: Stack, job: int) -> list[str]:
    return [row["text"] for row in stack.rows(f"/api/v1/jobs/{job}/logs?page_size=500")]


def held(stack: Stack) -> set[str]:
    """The names of the machines of which a job holds a slot."""
    rows = stack.ask("GET", "/api/v1/agents?page_size=200")["results"]
    return {row["name"] for row in rows if row["reserved"]}


def starts(stack: Stack, job: int) -> list[dict[str, Any]]:
    """The orders to start a process, in their order."""
    rows = stack.rows(f"/api/v1/jobs/{job}/decisions?kind=start-process")
    return [row["payload"] for row in sorted(rows, key=lambda row: row["sequence"])]


def test_the_example_is_trained_to_the_end_with_shares_by_speed(stack: Stack, agents: dict[str, Service]) -> None:
    first, second, _ = agents
    script = ("examples/emulate.py", "1000,250", "examples/train_paceline.py", "--epochs", str(EPOCHS))
    job = submit(stack, "python", *script, synchronization={"batching": "lb-bsp-linear"})
    done = stack.await_job(job, "succeeded", seconds=240)
    assert done["reason"].startswith("its script ended with status 0; ")
    assert done["workers"] == 2
    assert done["iteration"] >= 3 * EPOCHS
    shares = stack.rows(f"/api/v1/jobs/{job}/decisions?kind=set-shares")[0]["payload"]["shares"]
    assert shares["0"] > 2 * shares["1"]
    rows = stack.rows(f"/api/v1/jobs/{job}/processes")
    assert [(row["index"], row["agent"], row["environment"]["launcher"]) for row in rows] == [
        (0, first, "agent"),
        (1, second, "agent"),
    ]
    eventually(lambda: any(text.startswith(f"epoch {EPOCHS}: ") for text in log_of(stack, job)), what="its output")
    eventually(lambda: not held(stack), what="the return of its slots")


def test_a_stop_reaches_the_ranks_which_may_save(stack: Stack, agents: dict[str, Service], tmp_path: Path) -> None:
    first, second, _ = agents
    job = attached_script(stack, tmp_path, {"iterations": 10**6, "speeds": [2000.0, 2000.0]})
    stack.await_iteration(job, 3, seconds=120)
    assert held(stack) == {first, second}
    stack.ask("POST", f"/api/v1/jobs/{job}/actions/stop")
    done = stack.await_job(job, "cancelled", seconds=90)
    assert done["reason"].startswith("stopped by tester")
    assert f"ended with status {STOPPED}" in done["reason"]
    assert {lines(tmp_path, rank)[-1]["k"] for rank in range(2)} == {lines(tmp_path, 0)[-1]["k"]}
    assert "stopped" in lines(tmp_path, 0)[-1]
    eventually(lambda: not held(stack), what="the return of its slots")


def test_a_script_that_fails_fails_the_job_with_its_last_line(stack: Stack, agents: dict[str, Service]) -> None:
    program = "import os, time\nif os.environ['RANK'] == '0': time.sleep(600)\nraise ValueError('no such data set')"
    job = submit(stack, "python", "-c", program)
    done = stack.await_job(job, "failed", seconds=90)
    assert done["reason"] == "its script failed: w1 ended with status 1 (ValueError: no such data set)"
    eventually(lambda: not held(stack), what="the return of its slots")


def test_ranks_of_a_lost_machine_start_again_on_another(
    stack: Stack, agents: dict[str, Service], tmp_path: Path
) -> None:
    """Last of these tests: it takes one of their machines away."""
    first, second, third = agents
    options = {"iterations": ITERATIONS, "speeds": [640.0, 640.0], "saves": True}
    job = attached_script(stack, tmp_path, options, elastic={"restarts": 1})
    stack.await_iteration(job, 5, seconds=120)
    agents[second].process.kill()
    done = stack.await_job(job, "succeeded", seconds=240)
    assert done["iteration"] == ITERATIONS
    ids = {row["name"]: row["id"] for row in stack.ask("GET", "/api/v1/agents?page_size=200")["results"]}
    places = [(each["index"], each["agent"], each["script"]["attempt"]) for each in starts(stack, job)]
    assert places == [
        (0, ids[first], 1),
        (1, ids[second], 1),
        (0, ids[first], 2),
        (1, ids[third], 2),
    ]
    trained = [line["k"] for line in lines(tmp_path, 0) if "k" in line]
    assert set(trained) == set(range(ITERATIONS))
    reasons = [row["reason"] for row in stack.rows(f"/api/v1/jobs/{job}/decisions?kind=move-job")]
    (failed,) = [reason for reason in reasons if reason.endswith("; restart 1 of 1")]
    assert "w1 was lost" in failed or "no end of w1 was reported" in failed  # its peer may notice first
