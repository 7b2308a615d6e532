"""A machine is tested by its real agent, with an encrypted link to another real agent."""

from typing import Any

import pytest

from controlplane.runtime.embedded.joining import start_agent
from controlplane.runtime.embedded.processes import stop_services
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def test_a_machine_is_measured_and_compared_with_another_that_is_alike(stack: Stack) -> None:
    token = stack.ask("POST", "/api/v1/agents/enrolment-tokens", json={"name": "second"})["token"]
    log = stack.plane.logs / "second-tested.log"
    folder = stack.folder / "second-tested"
    started = start_agent(stack.url, token, name="second", folder=folder, speeds=[400.0], server_slots=1, log=log)

    def online() -> dict[str, int]:
        rows = stack.ask("GET", "/api/v1/agents?page_size=200")["results"]
        return {row["name"]: row["id"] for row in rows if row["state"] == "online"}

    def result(agent: int) -> dict[str, Any]:
        stack.ask("POST", f"/api/v1/agents/{agent}/actions/test", json={"force": True})
        path = f"/api/v1/agents/{agent}/tests"
        eventually(lambda: stack.ask("GET", path)[0]["ended_at"], what="the end of the test", seconds=100)
        latest: dict[str, Any] = stack.ask("GET", path)[0]
        return latest

    try:
        eventually(lambda: "second" in online(), what="the second machine", seconds=60)
        first = next(agent for name, agent in sorted(online().items()) if name != "second")
        for agent in (first, online()["second"]):
            found = result(agent)
            assert (found["state"], found["failure"], found["failed_links"]) == ("succeeded", "", [])
            names = [each["name"] for each in found["measured"]]
            assert names[:4] == ["cpu_flops", "memory_bytes_per_s", "bytes_per_s", "round_trip_s"]
            assert all(each["value"] > 0 for each in found["measured"])
        assert found["measured"][0]["others"] >= 1
        assert "at its real speed" in found["emulated"]
    finally:
        stop_services([started])
