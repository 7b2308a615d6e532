"""A job under fire, with simulated trainers that report as fast as they may, while Celery is killed again and again.

What the database then holds is judged by a replay: the events that it has, given to a fresh engine, lead to exactly
the decisions that it has.
"""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

from benchmarks.live.load_agent import LoadAgent
from benchmarks.live.timing import Timing
from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LABELS = {"machines": "simulated"}
KILLS = ["decisions", "history", "decisions"]


@contextmanager
def simulated_machine(stack: Stack, slots: int) -> Iterator[tuple[LoadAgent, Timing]]:
    """An agent whose workers report as fast as orders come, from a thread of its own."""
    token = stack.ask("POST", "/api/v1/agents/enrolment-tokens", json={"name": "simulated", "labels": LABELS})["token"]
    credential = stack.ask("POST", "/api/v1/agents/enrol", json={"token": token, "name": "simulated"})["credential"]
    timing = Timing(seconds=0.0, begin=float("inf"))
    machine = LoadAgent(stack.url.replace("http", "ws"), credential, slots=slots, pace=timing)
    thread = Thread(target=lambda: asyncio.run(machine.run(until_over=True)), name="simulated machine")
    thread.start()
    try:
        yield machine, timing
    finally:
        timing.begin = 0.0
        thread.join(timeout=90)
    assert not thread.is_alive()


def test_events_in_the_database_lead_to_the_decisions_in_the_database(stack: Stack) -> None:
    with simulated_machine(stack, slots=4) as (machine, timing):
        job = stack.submit(
            stop={"iterations": 1_000_000},
            servers=1,
            labels=LABELS,
            synchronization={"batching": {"name": "lb-bsp-cpu", "predictor": "memoryless"}},
        )["id"]
        iteration = 20
        for part in KILLS:
            stack.await_iteration(job, iteration)
            stack.kill(part)
            stack.restart(part)
            iteration = stack.job(job)["iteration"] + 100
        stack.await_iteration(job, iteration)
        timing.begin = 0.0  # reporting ends; then the log holds still
        eventually(
            lambda: stack.job(job)["samples"] == sum(machine.reports_sent.values()) * 16,
            what="the last report's row",
            seconds=60,
        )
        stack.stop(job)
        eventually(lambda: not reserved(stack), what="the slots' release")
    rows = eventually(lambda: rows_that_end_with(stack, job, "release-slots"), what="the last decision", seconds=60)
    reports = Counter((row["event"]["rank"], row["event"]["message"]["iteration"]) for row in rows if said_report(row))
    assert reports == Counter({(rank, k): 1 for (_, rank), count in machine.reports_sent.items() for k in range(count)})
    done = subprocess.run(
        [*MANAGE, "replay", str(job)],
        env=dict(stack.environment),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-1000:]
    assert "all decisions equal the recorded ones" in done.stdout


def rows_that_end_with(stack: Stack, job: int, kind: str) -> list[dict[str, Any]]:
    """All events, once the decision that ends everything is there too."""
    if not stack.ask("GET", f"/api/v1/jobs/{job}/decisions?kind={kind}")["results"]:
        return []
    return stack.rows(f"/api/v1/jobs/{job}/events?page_size=500")


def said_report(row: dict[str, Any]) -> bool:
    return bool(row["kind"] == "report")


def reserved(stack: Stack) -> bool:
    return any(agent["reserved"] for agent in stack.ask("GET", "/api/v1/agents")["results"])
