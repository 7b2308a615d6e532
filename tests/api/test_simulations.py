from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from controlplane.jobs.models import AuditEntry, Job
from controlplane.runtime import tasks
from controlplane.simulator.running import play, simulate
from controlplane.simulator.scenarios import find
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulations import simulation_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...]]]:
    sent: list[tuple[str, tuple[Any, ...]]] = []
    monkeypatch.setattr(
        "controlplane.api.views.simulations.current_app.send_task", lambda name, args: sent.append((name, args))
    )
    return sent


@pytest.fixture
def client() -> APIClient:
    client = APIClient()
    client.force_authenticate(User.objects.create_superuser("ann"))
    return client


def ask(client: APIClient, **document: Any) -> Any:
    return client.post("/api/v1/simulations", {"scenario": "demo"} | document, format="json")


def test_scenarios_are_listed_with_their_policies(client: APIClient) -> None:
    rows = {row["name"]: row for row in client.get("/api/v1/scenarios").json()}
    assert rows["demo"]["policies"] == ["bsp", "lb-bsp-cpu", "lb-bsp-linear"]
    assert "psld-transient" in rows


def test_a_simulation_is_queued_run_and_read_with_its_outcomes(client: APIClient, queued: list[Any]) -> None:
    reply = ask(client, policies=["bsp", "lb-bsp-linear"], seed=3)
    assert (reply.status_code, reply.json()["state"], reply.json()["total"]) == (202, "queued", 2)
    pk = reply.json()["id"]
    assert queued == [(tasks.SIMULATE, (pk,))]
    assert reply.headers["Location"].endswith(f"/api/v1/simulations/{pk}")
    tasks.run_simulation(pk)
    found = client.get(f"/api/v1/simulations/{pk}").json()
    assert (found["state"], found["done"]) == ("succeeded", 2)
    assert found["outcomes"][1] == simulate(find("demo"), "lb-bsp-linear", seed=3).document()
    assert [row["id"] for row in client.get("/api/v1/simulations").json()["results"]] == [pk]
    assert AuditEntry.objects.filter(action="simulation-submit", subject=f"simulation {pk}").exists()


@pytest.mark.parametrize(
    ("document", "detail"),
    [
        ({"scenario": "dem"}, "scenario: found 'dem', expected one of those that"),
        ({"policies": ["fastest"]}, "policies: found 'fastest', expected one of bsp, lb-bsp-cpu"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    client: APIClient, queued: list[Any], document: dict[str, Any], detail: str
) -> None:
    reply = ask(client, **document)
    assert reply.status_code == 400
    assert detail in reply.content.decode()
    assert queued == []
    assert not Simulation.objects.exists()


def test_a_cancelled_simulation_keeps_what_it_has_and_stores_nothing_more(
    client: APIClient, queued: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pk = ask(client).json()["id"]

    went_on = []

    def and_cancel(scenario: Any, policy: str, *, watch: Callable[[], None], **rest: Any) -> Any:
        if policy == "lb-bsp-cpu":
            assert client.post(f"/api/v1/simulations/{pk}/actions/cancel").status_code == 202
        cluster = play(scenario, policy, watch=watch, **rest)
        went_on.append(policy)
        return cluster

    monkeypatch.setattr("controlplane.telemetry.simulations.LOOK_S", 0.0)
    monkeypatch.setattr("controlplane.telemetry.simulations.play", and_cancel)
    simulation_run(pk)
    row = Simulation.objects.get(pk=pk)
    assert (row.state, row.done, row.reason) == ("cancelled", 1, "cancelled by ann")
    assert went_on == ["bsp"], "the run under way broke off before its end"
    assert [job.policy for job in row.runs.all()] == ["bsp"]
    again = client.post(f"/api/v1/simulations/{pk}/actions/cancel")
    assert (again.status_code, "cancelled already" in again.json()["detail"]) == (409, True)
    assert client.post("/api/v1/simulations/99999/actions/cancel").status_code == 404


def test_a_task_that_runs_twice_changes_nothing(client: APIClient, queued: list[Any]) -> None:
    pk = ask(client, policies=["bsp"]).json()["id"]
    simulation_run(pk)
    before = Simulation.objects.values().get(pk=pk)
    simulation_run(pk)
    assert Simulation.objects.values().get(pk=pk) == before


def test_each_policy_is_a_job_whose_series_are_read_like_any_other(client: APIClient, queued: list[Any]) -> None:
    pk = ask(client, policies=["bsp", "lb-bsp-linear"]).json()["id"]
    assert client.get(f"/api/v1/simulations/{pk}").json()["runs"] == []
    simulation_run(pk)
    found = client.get(f"/api/v1/simulations/{pk}").json()
    bsp, balanced = found["runs"]
    assert (bsp["policy"], balanced["policy"]) == ("bsp", "lb-bsp-linear")
    job = client.get(f"/api/v1/jobs/{balanced['job']}").json()
    assert (job["state"], job["iteration"], job["name"]) == ("succeeded", 200, "demo lb-bsp-linear")
    assert job["samples"] == found["outcomes"][1]["samples"]
    metrics = client.get(f"/api/v1/jobs/{balanced['job']}/metrics", {"metric": "samples"}).json()
    assert [len(one["iterations"]) for one in metrics["series"]] == [200] * 4
    kinds = {row["kind"] for row in client.get(f"/api/v1/jobs/{balanced['job']}/decisions").json()["results"]}
    assert "set-shares" in kinds
    assert client.get(f"/api/v1/jobs/{balanced['job']}/figures/convergence").status_code == 200
    client.force_login(User.objects.get(username="ann"))
    assert client.get(f"/jobs/{balanced['job']}/").status_code == 200
    assert client.get("/api/v1/jobs").json()["results"] == [], "nobody submitted them to run"
    assert client.get("/api/v1/workers").json()["results"] == []
    Simulation.objects.all().delete()
    assert not Job.objects.exists()
