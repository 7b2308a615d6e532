"""``policy: auto`` on real processes: it learns, simulates aside, switches, and says what came of it."""

import pytest

from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SPEEDS = (800.0, 800.0, 400.0, 200.0)


@pytest.mark.timeout(400)
def test_a_job_on_unequal_machines_switches_to_balanced_shares_by_itself(stack: Stack) -> None:
    emulate = [{"samples_per_second": speed} for speed in SPEEDS]
    job = stack.submit(policy="auto", emulate=emulate, batch_size=64, stop={"iterations": 100_000})["id"]
    path = f"/api/v1/jobs/{job}/autopilot"

    def switched() -> bool:
        return any(each["switches"] for each in stack.ask("GET", path)["decisions"])

    eventually(switched, what="a switch by the autopilot", seconds=200)
    policy = stack.ask("GET", f"/api/v1/jobs/{job}/policy")
    stack.stop(job)
    (look,) = [each for each in stack.ask("GET", path)["decisions"] if each["switches"]][:1]
    assert policy["batching"]["name"].startswith("lb-bsp")
    assert {row["name"] for row in look["rows"]} >= {"lb-bsp-cpu with ema, bsp", "lb-bsp-linear, bsp"}
    assert look["rows"][0]["saved"] > look["rows"][0]["error"]
