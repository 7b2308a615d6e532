"""``paceline ray`` on a real Ray cluster of emulated nodes, with a real control plane."""

import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import ROOT
from tests.support.native_jobs import NATIVE_JOBS, NativeJob, reports_of
from tests.support.on_ray import INSTALL, PYTHON, Cluster, is_installed
from tests.support.stack import Stack
from tests.support.waiting import eventually, slowness

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not is_installed(), reason=INSTALL),
]

log = logging.getLogger(__name__)

SHOWN = 12
"""Digits of a node's id in an agent's label."""

TRAINING: dict[str, Any] = {"workers": 3, "servers": 1, "batch_size": 32, "stop": {"iterations": 40}}


@pytest.fixture
def plane(stack: Stack) -> Stack:
    return stack


@pytest.fixture
def cluster(ray_cluster: Cluster) -> Cluster:
    return ray_cluster


def up(plane: Stack, cluster: Cluster, name: str, *options: str) -> None:
    given = ("--name", name, "--label", f"pool={name}", "--url", plane.url, "--detach", *options)
    cluster.paceline("ray", "up", *given, PACELINE_API_TOKEN=plane.token)


def view_of(cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.paceline("ray", "status", "--name", name, "--json"))
    return found


def wanting(cluster: Cluster, name: str, **wanted: Any) -> dict[str, Any]:
    """The fleet, once it is as wanted."""
    view = view_of(cluster, name)
    return view if wanted.items() <= view.items() else {}


def members(cluster: Cluster, name: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in view_of(cluster, name)["members"]}


def down(plane: Stack, cluster: Cluster, name: str) -> None:
    cluster.paceline("ray", "down", "--name", name, "--url", plane.url, PACELINE_API_TOKEN=plane.token)


def joined(plane: Stack, name: str) -> dict[str, dict[str, Any]]:
    """The fleet's agents that are here, as the control plane knows them."""
    rows = plane.ask("GET", "/api/v1/agents?page_size=100")["results"]
    return {row["name"]: row for row in rows if row["labels"] == {"pool": name} and row["state"] == "online"}


def is_elsewhere(plane: Stack, node: str) -> bool:
    """Whether the agent of that node is back, on another."""
    agent = joined(plane, "steady").get("steady-2")
    return agent is not None and agent["unverified_labels"]["ray-node"] != node[:SHOWN]


def lives(plane: Stack, job: int, agent: str) -> list[dict[str, Any]]:
    """A job's processes on one agent, the first to begin first."""
    rows = plane.ask("GET", f"/api/v1/jobs/{job}/processes?page_size=100")["results"]
    return sorted((row for row in rows if row["agent"] == agent), key=lambda row: int(row["id"]))


def are_ready(plane: Stack, job: int, workers: int) -> bool:
    rows = plane.ask("GET", f"/api/v1/jobs/{job}/processes?page_size=100")["results"]
    return sum(row["role"] == "worker" and row["state"] == "ready" for row in rows) == workers


def follow(plane: Stack, job: int, *, until: Callable[[], bool]) -> tuple[float, float]:
    """Seconds: the longest in which the job did not move, and all of them."""
    began = moved_at = time.monotonic()
    longest, iteration = 0.0, -1

    def look() -> bool:
        nonlocal moved_at, longest, iteration
        found = plane.job(job)
        assert not found["is_over"], found
        longest = max(longest, time.monotonic() - moved_at)
        if found["iteration"] != iteration:
            moved_at, iteration = time.monotonic(), found["iteration"]
        return until()

    eventually(look, what="the agent's return", seconds=90, every=0.1)
    return longest, time.monotonic() - began


def test_a_job_that_is_submitted_to_ray_attaches_on_each_of_its_nodes(
    plane: Stack, cluster: Cluster, tmp_path: Path
) -> None:
    tutorial = (ROOT / "examples" / "ray_train" / "train_paceline.py").read_text()
    script = tmp_path / "train.py"
    script.write_text(tutorial.replace("num_workers=2", 'num_workers=2, placement_strategy="SPREAD"'))
    environment = {"env_vars": {"PACELINE_API_TOKEN": plane.token}}
    run = [str(PYTHON), "-m", "paceline", "run", "--url", plane.url, "--name", "on-ray", "--workers", "2"]
    submit = ["job", "submit", "--address", cluster.jobs, "--runtime-env-json", json.dumps(environment)]
    said = cluster.run(str(PYTHON.with_name("ray")), *submit, "--", *run, "--", str(PYTHON), str(script))
    reached = float(re.findall(r"accuracy (\d\.\d+)", said)[-1])
    assert reached > 0.8
    (job,) = (row for row in plane.ask("GET", "/api/v1/jobs?page_size=100")["results"] if row["name"] == "on-ray")
    assert (job["state"], job["workers"], job["samples"]) == ("succeeded", 2, 4 * 1536)
    ranks = plane.ask("GET", f"/api/v1/jobs/{job['id']}/processes")["results"]
    machines = {rank["environment"]["machine"] for rank in ranks}
    assert len(machines) == 2
    assert all(any(f"(Ray node {node[:SHOWN]})" in machine for node in cluster.nodes) for machine in machines)


def test_agents_are_actors_on_nodes_of_their_own_and_one_whose_node_is_killed_comes_back_elsewhere(
    plane: Stack, cluster: Cluster
) -> None:
    up(plane, cluster, "steady", "--agents", "3", "--emulate", "1000,1000,500")
    placed = members(cluster, "steady")
    assert {each["node"] for each in placed.values()} == set(cluster.nodes)
    assert {each["host"] for each in placed.values()} <= cluster.hosts_with_state()
    assert {row["unverified_labels"]["ray-node"] for row in joined(plane, "steady").values()} == {
        node[:SHOWN] for node in cluster.nodes
    }

    job = plane.submit(**TRAINING | {"labels": {"pool": "steady"}, "stop": {"iterations": 5000}})["id"]
    plane.await_iteration(job, 50)
    killed = placed["steady-2"]["node"]
    cluster.kill(killed)
    stood, returned = follow(plane, job, until=lambda: is_elsewhere(plane, killed) and are_ready(plane, job, 3))
    log.info("the job stood still for %.1f s; the agent and its worker were back after %.1f s", stood, returned)
    assert stood < 60 * slowness()
    moved = joined(plane, "steady")["steady-2"]
    assert moved["unverified_labels"]["ray-node"] in {node[:SHOWN] for node in cluster.nodes if node != killed}
    assert members(cluster, "steady")["steady-2"]["host"] in {placed[name]["host"] for name in ("steady-0", "steady-1")}
    (ended, *_) = lives(plane, job, "steady-2")
    assert any(word in ended["reason"] for word in ("was lost", "no heartbeat", "ended by signal")), ended["reason"]
    plane.await_iteration(job, plane.job(job)["iteration"] + 20)
    plane.stop(job)
    down(plane, cluster, "steady")
    assert joined(plane, "steady") == {}
    eventually(lambda: not cluster.left(), what="the end of the agents")
    (token, *_) = plane.ask("GET", "/api/v1/agents/enrolment-tokens")["results"]
    assert token["revoked_at"]


def is_revoked(plane: Stack) -> list[bool]:
    """Of each enrolment token that has been created, the oldest first."""
    rows = plane.ask("GET", "/api/v1/agents/enrolment-tokens?page_size=100")["results"]
    return [row["revoked_at"] is not None for row in reversed(rows)]


def test_a_fleet_that_is_started_again_has_its_new_labels(plane: Stack, cluster: Cluster) -> None:
    up(plane, cluster, "again")
    assert joined(plane, "again")["again-0"]["labels"] == {"pool": "again"}
    down(plane, cluster, "again")
    up(plane, cluster, "again", "--label", "round=2")
    rows = plane.ask("GET", "/api/v1/agents?page_size=100")["results"]
    (agent,) = (row for row in rows if row["name"] == "again-0")
    assert (agent["state"], agent["labels"]) == ("online", {"pool": "again", "round": "2"})
    down(plane, cluster, "again")


def test_a_fleet_that_does_not_start_or_is_interrupted_leaves_no_valid_token(plane: Stack, cluster: Cluster) -> None:
    before = is_revoked(plane)
    start = ("ray", "up", "--name", "brief", "--url", plane.url)
    for options in (("--detach",), ()):
        large = (*start, "--cpus", "64", "--wait", "1s", *options)
        said = cluster.paceline(*large, code=1, PACELINE_API_TOKEN=plane.token)
        assert "found no room within 1 s" in said
    assert is_revoked(plane)[len(before) :] == [True, True]

    with cluster.started(str(PYTHON), "-m", "paceline", *start, PACELINE_API_TOKEN=plane.token) as command:
        assert command.stdout is not None
        eventually(lambda: " connected " in command.stdout.readline(), what="the fleet", seconds=120)
        assert is_revoked(plane)[len(before) :] == [True, True, False]
        command.terminate()
        said, _ = command.communicate(timeout=120)
    assert "taking the agents down" in said
    assert is_revoked(plane)[len(before) :] == [True, True, True]


@pytest.fixture(scope="module")
def pair(stack: Stack, ray_cluster: Cluster) -> Iterator[str]:
    """A fleet of two agents, and its label."""
    up(stack, ray_cluster, "pair", "--agents", "2", "--server-slots", "1")
    yield "pair"
    down(stack, ray_cluster, "pair")


@pytest.mark.parametrize("native", NATIVE_JOBS.values(), ids=NATIVE_JOBS)
def test_agents_of_a_fleet_run_jobs_that_attached_scripts_cannot(native: NativeJob, pair: str, plane: Stack) -> None:
    job = plane.submit(**native.spec | {"labels": {"pool": pair}})["id"]
    plane.await_job(job, "succeeded", seconds=150)
    native.check(reports_of(plane, job))
    processes = plane.ask("GET", f"/api/v1/jobs/{job}/processes")["results"]
    assert {each["agent"] for each in processes} == {f"{pair}-{number}" for number in range(2)}
