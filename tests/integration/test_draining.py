"""A machine is drained under a live job: its workers and servers continue elsewhere."""

from typing import Any

import pytest

from controlplane.runtime.embedded.joining import start_agent
from controlplane.runtime.embedded.processes import stop_services
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def machine(stack: Stack, name: str) -> dict[str, Any]:
    rows = stack.ask("GET", "/api/v1/agents?page_size=200")["results"]
    return next((row for row in rows if row["name"] == name), {"state": "", "reserved": []})


def held(stack: Stack, name: str) -> set[tuple[str, int]]:
    return {(row["role"], row["index"]) for row in machine(stack, name)["reserved"]}


def test_a_drained_machine_becomes_empty_and_the_job_keeps_its_workers(stack: Stack) -> None:
    token = stack.ask("POST", "/api/v1/agents/enrolment-tokens", json={"name": "second"})["token"]
    log = stack.plane.logs / "second.log"
    folder = stack.folder / "second"
    started = start_agent(stack.url, token, name="second", folder=folder, speeds=[400.0] * 2, server_slots=1, log=log)
    try:
        eventually(lambda: machine(stack, "second")["state"] == "online", what="the second machine", seconds=60)
        first = next(row for row in stack.ask("GET", "/api/v1/agents")["results"] if row["name"] != "second")
        job = stack.submit(workers=2, servers=1, stop={"iterations": 100_000})["id"]
        stack.await_iteration(job, 10, seconds=120)
        assert held(stack, first["name"]) == {("worker", 0), ("worker", 1), ("server", 0)}
        stack.ask("POST", f"/api/v1/agents/{first['id']}/actions/drain", json={"reason": "new disks"})
        eventually(lambda: not machine(stack, first["name"])["reserved"], what="the empty machine", seconds=150)
        moved = {("worker", 0), ("worker", 1), ("server", 1)}
        eventually(lambda: held(stack, "second") == moved, what="their return", seconds=90)
        reached = stack.job(job)["iteration"]
        stack.await_iteration(job, reached + 20, seconds=60)
        stack.ask("POST", f"/api/v1/agents/{first['id']}/actions/uncordon", json={})
        stack.stop(job)
    finally:
        stop_services([started])
