import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone
from rest_framework.test import APIClient

from controlplane.jobs.models import AuditEntry, Job
from controlplane.people.quotas import BUILT_IN, quota_set
from controlplane.runtime import tasks
from controlplane.runtime.recorded_jobs import simulated_run
from controlplane.simulator.running import play, simulate
from controlplane.simulator.scenarios import find
from controlplane.telemetry import simulations
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulations import (
    MOST_ATTEMPTS,
    SILENCE,
    simulation_run,
    simulation_submit,
    simulations_rescue,
    simulations_run,
)
from tests.api.conftest import refused
from tests.api.test_teams import client as client_of
from tests.api.test_teams import person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sent: list[str] = []
    monkeypatch.setattr("controlplane.api.views.simulations.current_app.send_task", sent.append)
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
    assert queued == [tasks.SIMULATE]
    assert reply.headers["Location"].endswith(f"/api/v1/simulations/{pk}")
    simulations_run()
    found = client.get(f"/api/v1/simulations/{pk}").json()
    assert (found["state"], found["done"]) == ("succeeded", 2)
    assert found["outcomes"][1] == simulate(find("demo"), "lb-bsp-linear", seed=3).document()
    assert [row["id"] for row in client.get("/api/v1/simulations").json()["results"]] == [pk]
    assert AuditEntry.objects.filter(action="simulation-submit", subject=f"simulation {pk}").exists()


def test_a_scenario_on_other_machines_is_what_the_command_simulates(client: APIClient, queued: list[Any]) -> None:
    changed = {"workers": 3, "global_batch": 510}
    pk = ask(client, policies=["bsp"], seed=3, **changed).json()["id"]
    simulations_run()
    found = client.get(f"/api/v1/simulations/{pk}").json()
    out = io.StringIO()
    flags = "--policies", "bsp", "--seed", "3", "--workers", "3", "--global-batch", "510", "--json"
    call_command("simulate", "demo", *flags, stdout=out)
    assert found["outcomes"] == json.loads(out.getvalue())["outcomes"]
    assert (found["state"], found["variation"], found["paper"]) == ("succeeded", changed, [])
    run = simulated_run(found["runs"][0]["job"])
    assert run is not None
    assert run.scenario.spec.workers == 3, "what else it could do is played on the same machines"


@pytest.mark.parametrize(
    ("document", "detail"),
    [
        ({"scenario": "dem"}, "scenario: found 'dem', expected one of those that"),
        ({"policies": ["fastest"]}, "policies: found 'fastest', expected one of bsp, lb-bsp-cpu"),
        ({"seed": -1}, "seed"),
        ({"workers": 0}, "workers: found 0, expected `int` >= 1"),
        ({"bandwidth": 2}, "bandwidth: found 2.0, expected none: nothing in this scenario limits bandwidth"),
        ({"global_batch": "many"}, "global_batch"),
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
    assert (again.status_code, "already cancelled" in again.json()["detail"]) == (409, True)
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


class Killed(BaseException):
    """Ends a task as SIGKILL does: nothing is tidied up."""


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Has the task die when it has stored the run of a policy, and not yet said so; gives the policies played."""
    from controlplane.telemetry import simulations

    def arrange(fatal: str) -> list[str]:
        played: list[str] = []
        store = simulations.run_store

        def store_and_die(row: Simulation, policy: str, *rest: Any) -> Job:
            played.append(policy)
            job = store(row, policy, *rest)
            if policy == fatal and played.count(policy) == 1:
                raise Killed
            return job

        monkeypatch.setattr(simulations, "run_store", store_and_die)
        return played

    return arrange


def test_a_simulation_whose_process_was_killed_continues_in_another(
    client: APIClient, queued: list[Any], killed_at: Callable[[str], list[str]]
) -> None:
    pk = ask(client, policies=["bsp", "lb-bsp-linear"]).json()["id"]
    played = killed_at("lb-bsp-linear")
    with pytest.raises(Killed):
        simulation_run(pk)
    now = timezone.now()
    assert not simulations_rescue(now), "it may still live"
    assert simulations_rescue(now + SILENCE)
    simulations_run()
    assert not simulations_rescue(now + SILENCE)
    found = client.get(f"/api/v1/simulations/{pk}").json()
    assert (found["state"], found["done"]) == ("succeeded", 2)
    assert played == ["bsp", "lb-bsp-linear", "lb-bsp-linear"], "what had an outcome is not played again"
    assert list(Job.objects.order_by("id").values_list("policy", flat=True)) == ["bsp", "lb-bsp-linear"]


def test_an_abandoned_task_that_still_runs_changes_nothing(
    client: APIClient, queued: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pk = ask(client, policies=["bsp"]).json()["id"]
    others = []

    def play_while_another_does(*arguments: Any, **rest: Any) -> Any:
        if not others:
            others.append(pk)
            assert simulations_rescue(timezone.now() + SILENCE)
            simulation_run(pk)
        return play(*arguments, **rest)

    monkeypatch.setattr("controlplane.telemetry.simulations.play", play_while_another_does)
    simulation_run(pk)
    row = Simulation.objects.get(pk=pk)
    assert (row.state, row.done, row.attempt, row.runs.count()) == ("succeeded", 1, 2, 1)


def test_a_simulation_that_every_process_dies_of_is_ended(
    client: APIClient, queued: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> Any:
        raise Killed

    pk = ask(client, policies=["bsp"]).json()["id"]
    monkeypatch.setattr("controlplane.telemetry.simulations.play", die)
    for attempt in range(MOST_ATTEMPTS):
        with pytest.raises(Killed):
            simulation_run(pk)
        assert simulations_rescue(timezone.now() + SILENCE) == (attempt < MOST_ATTEMPTS - 1)
    row = Simulation.objects.get(pk=pk)
    assert row.state == "failed"
    assert row.reason == "each of the 3 processes that ran it died: see their logs, and how much memory they had"


def test_a_process_that_shuts_down_gives_its_simulation_back(client: APIClient, queued: list[Any]) -> None:
    pk = ask(client, policies=["bsp", "lb-bsp-linear"]).json()["id"]
    simulation_run(pk, is_stopping=lambda: True)
    row = Simulation.objects.get(pk=pk)
    assert (row.state, row.done, row.attempt, row.runs.count()) == ("queued", 0, 0, 0)
    assert simulations_rescue(timezone.now())


def test_those_that_wait_are_simulated_in_the_order_in_which_they_were_requested(
    client: APIClient, queued: list[Any]
) -> None:
    asked = [ask(client, policies=["bsp"], seed=seed).json()["id"] for seed in range(3)]
    assert simulations_rescue(timezone.now()), "the queue may have lost their tasks"
    simulations_run()
    ended = Simulation.objects.order_by("finished_at").values_list("pk", "state")
    assert list(ended) == [(pk, "succeeded") for pk in asked]


def test_users_have_turns_after_each_policy(monkeypatch: pytest.MonkeyPatch, queued: list[Any]) -> None:
    ann, bob = (User.objects.create_user(name) for name in ("ann", "bob"))
    asked = [(ann, ["bsp", "lb-bsp-linear"]), (ann, ["bsp"]), (bob, ["bsp", "lb-bsp-linear"])]
    for user, policies in asked:
        simulation_submit(scenario="demo", policies=policies, seed=1, user=user)
    played: list[str] = []
    store = simulations.run_store

    def noted(row: Simulation, policy: str, *rest: Any) -> Job:
        played.append(f"{row.submitted_by} {row.pk - first} {policy}")
        return store(row, policy, *rest)

    first = Simulation.objects.earliest("pk").pk
    monkeypatch.setattr(simulations, "run_store", noted)
    simulations_run()
    assert played == ["ann 0 bsp", "bob 2 bsp", "ann 0 lb-bsp-linear", "bob 2 lb-bsp-linear", "ann 1 bsp"]
    assert set(Simulation.objects.values_list("state", flat=True)) == {"succeeded"}
    assert [row.runs.count() for row in Simulation.objects.order_by("pk")] == [2, 1, 2]


def test_a_policy_that_takes_too_long_ends_its_simulation_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, client: APIClient, queued: list[Any]
) -> None:
    pk = ask(client, policies=["bsp", "lb-bsp-linear"]).json()["id"]
    moments = iter([0.0, 0.0])  # one policy in time, then the clock is past the limit
    monkeypatch.setattr(simulations.time, "monotonic", lambda: next(moments, 2 * simulations.MOST_S))
    simulation_run(pk)
    row = Simulation.objects.get(pk=pk)
    assert (row.state, row.runs.count()) == ("failed", row.done)
    assert "simulated for more than 900 s, and ended: other simulations wait. Ask for fewer" in row.reason


def test_a_user_has_twenty_unfinished_simulations_unless_an_admin_allows_more(queued: list[Any]) -> None:
    ann, bob = person("ann"), person("bob")
    Simulation.objects.bulk_create(
        Simulation(scenario="demo", policies=["bsp"], submitted_by=ann) for _ in range(BUILT_IN["simulations"])
    )
    told = refused(ask(client_of(ann)))
    assert (told["status"], told["field"], told["found"]) == (409, "quota.simulations", 21)
    assert ask(client_of(bob)).status_code == 202
    quota_set(user=ann, actor="root", simulations=None)
    assert ask(client_of(ann)).status_code == 202


def test_none_is_begun_by_a_process_that_ends(client: APIClient, queued: list[Any]) -> None:
    pk = ask(client, policies=["bsp"]).json()["id"]
    simulations_run(is_stopping=lambda: True)
    assert Simulation.objects.get(pk=pk).state == "queued"


def test_simulations_are_done_aside_and_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is simulated, the other threads stay free for what the control plane lives by."""
    commands: list[list[str]] = []

    def aside(command: list[str], stopping: Any, most_s: float) -> str:
        commands.append(command)
        tasks.run_simulations()
        return ""

    monkeypatch.setattr("controlplane.runtime.tasks.run_in_subprocess", aside)
    tasks.run_simulations()
    tasks.run_simulations()
    assert commands == [["simulate", "--queued"]] * 2
