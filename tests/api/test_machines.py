"""Machines over REST: invited by an admin, enrolled by themselves."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from redis.exceptions import ConnectionError as RedisLost
from rest_framework.test import APIClient

from controlplane.api import enrolment, machines
from controlplane.fleet.cluster import Cluster, parse_accounts
from controlplane.fleet.models import Agent, EnrolmentToken
from controlplane.fleet.reservations import replace_slot
from controlplane.fleet.selectors import agent_by_credential
from controlplane.fleet.services import agent_connected, agent_disconnected, agent_remove, token_create, token_redeem
from controlplane.jobs.models import AuditEntry
from controlplane.jobs.roles import Role
from controlplane.people.teams import member_set, owner_set, team_create
from tests.api.conftest import Clients, problem, refused
from tests.support.api_server import ApiServer, own_token
from tests.support.certificates import make_certificates
from tests.support.rows import emulated, hello, online_agent, reserve

pytestmark = pytest.mark.django_db


def test_a_machine_is_invited_and_joins(admin: APIClient, anybody: APIClient) -> None:
    invitation = admin.post("/api/v1/agents/enrolment-tokens", {"labels": {"gpu": "a100"}}, format="json")
    token = invitation.json()["token"]
    row = EnrolmentToken.objects.get()
    assert (invitation.status_code, invitation.json()["command"], row.created_by, row.labels) == (
        201,
        "python -m workers join http://127.0.0.1:8000 - --slots 1",
        User.objects.get(username="admin"),
        {"gpu": "a100"},
    )
    reply = anybody.post("/api/v1/agents/enrol", {"token": token, "name": "m1"}, format="json")
    agent = Agent.objects.get()
    assert (reply.status_code, reply.json()["agent"], agent_by_credential(reply.json()["credential"])) == (
        201,
        agent.pk,
        agent,
    )
    assert list(AuditEntry.objects.values_list("actor", "action")) == [
        ("admin", "agent-invite"),
        ("agent m1", "agent-enrol"),
    ]


def test_a_token_that_is_used_up_is_refused_with_the_cure(anybody: APIClient) -> None:
    token, _ = token_create(labels={})
    anybody.post("/api/v1/agents/enrol", {"token": token, "name": "m1"}, format="json")
    found = refused(anybody.post("/api/v1/agents/enrol", {"token": token, "name": "m2"}, format="json"))
    assert found["status"] == 403
    assert found["detail"].endswith("and works once; make another with: python manage.py enroll")


def test_the_name_of_an_online_machine_is_taken(anybody: APIClient) -> None:
    online_agent("m1")
    token, _ = token_create(labels={}, name="m1")
    reply = anybody.post("/api/v1/agents/enrol", {"token": token, "name": "m1"}, format="json")
    sentence = "agent 'm1' is online; stop it first, or join under another --name"
    assert (reply.status_code, refused(reply)) == (409, problem(409, sentence))


def test_a_machine_that_is_away_is_removed_and_its_credential_is_unknown(admin: APIClient, anybody: APIClient) -> None:
    token, _ = token_create(labels={})
    joined = anybody.post("/api/v1/agents/enrol", {"token": token, "name": "m1"}, format="json").json()
    assert admin.delete(f"/api/v1/agents/{joined['agent']}").status_code == 204
    assert not Agent.objects.exists()
    assert agent_by_credential(joined["credential"]) is None
    assert list(AuditEntry.objects.values_list("actor", "action", "subject"))[1:] == [
        ("admin", "agent-remove", "agent m1")
    ]
    assert admin.delete(f"/api/v1/agents/{joined['agent']}").status_code == 404


def test_a_machine_at_work_is_not_removed_and_the_cure_is_named(admin: APIClient) -> None:
    agent = online_agent("m1")
    path = f"/api/v1/agents/{agent.pk}"
    reserve(7, {}, workers=1, servers=1)
    sentence = "agent 'm1' is online; stop it first, on its machine"
    assert refused(admin.delete(path)) == problem(409, sentence)
    agent_disconnected(agent.pk)
    sentence = (
        "agent 'm1' holds slots of these jobs: 7; stop these jobs, drain their workers that still run, or include "
        "those that were excluded or lost, which restart on other machines"
    )
    assert refused(admin.delete(path)) == problem(409, sentence)
    assert (Agent.objects.count(), AuditEntry.objects.count()) == (1, 0)


def test_an_included_worker_takes_its_slot_away_from_a_machine_that_is_gone() -> None:
    agent = online_agent("m1")
    reserve(7, {}, workers=1, servers=0)
    agent_disconnected(agent.pk)
    online_agent("m2")
    assert replace_slot(7, {}, "worker", 0) is not None
    agent_remove(agent.pk)
    assert list(Agent.objects.values_list("name", flat=True)) == ["m2"]


def test_a_machine_that_another_request_removed_meanwhile_is_not_found(
    admin: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = online_agent("m1")

    def removed_first(agent_id: int) -> None:
        Agent.objects.filter(pk=agent_id).delete()
        agent_remove(agent_id)

    monkeypatch.setattr(machines, "agent_remove", removed_first)
    assert refused(admin.delete(f"/api/v1/agents/{agent.pk}"))["status"] == 404
    assert not AuditEntry.objects.exists()


def test_a_removed_machine_returns_its_use_of_a_reusable_token(admin: APIClient) -> None:
    token, row = token_create(labels={}, uses=2)
    joined = [token_redeem(token=token, name=name).agent for name in ("m1", "m2")]
    assert admin.delete(f"/api/v1/agents/{joined[0]}").status_code == 204
    row.refresh_from_db()
    assert row.used == 1


def test_an_admin_of_a_team_does_not_remove_its_machine(client_of: Clients, admin: APIClient) -> None:
    team, other = team_create(name="vision", actor="root"), team_create(name="speech", actor="root")
    agent = online_agent("m1")
    owner_set(row=agent, team=team, actor="root")
    agent_disconnected(agent.pk)
    path, viewer = f"/api/v1/agents/{agent.pk}", client_of(Role.VIEWER)
    user = User.objects.get(username="viewer")
    member_set(team=other, user=user, role="admin", actor="root")
    assert refused(viewer.delete(path))["status"] == 404
    member_set(team=team, user=user, role="admin", actor="root")
    sentence = "this requires the role admin; your role is viewer. An admin can add you to that group"
    assert refused(viewer.delete(path)) == problem(403, sentence)
    assert viewer.get(path).status_code == 200
    assert admin.delete(path).status_code == 204


def test_a_machine_shows_its_slots_and_who_holds_them(viewer: APIClient) -> None:
    agent = online_agent("m1", slots=emulated(250.0), labels={"zone": "b"})
    reserve(7, {}, workers=1, servers=1)
    shown = viewer.get(f"/api/v1/agents/{agent.pk}").json()
    assert {key: shown[key] for key in ("name", "state", "labels", "slots", "server_slots", "reserved")} == {
        "name": "m1",
        "state": "online",
        "labels": {"zone": "b"},
        "slots": [{"emulate": {"samples_per_second": 250.0}}],
        "server_slots": 1,
        "reserved": [
            {"role": "server", "slot": 0, "job": 7, "index": 0},
            {"role": "worker", "slot": 0, "job": 7, "index": 0},
        ],
    }
    assert "credential_digest" not in shown


def test_machines_can_be_filtered(viewer: APIClient) -> None:
    online_agent("m1")
    Agent.objects.create(name="m2", credential_digest="x")
    found = viewer.get("/api/v1/agents?state=offline").json()
    assert [agent["name"] for agent in found["results"]] == ["m2"]


def test_a_credential_is_rotated_on_request_and_the_wish_is_in_the_audit(operator: APIClient, redis_url: str) -> None:
    agent = online_agent("m1", rotates=True)
    reply = operator.post(f"/api/v1/agents/{agent.pk}/actions/rotate")
    assert (reply.status_code, reply.json()["rotation"]["state"]) == (202, "pending")
    wish = ("operator", "agent-rotate", "agent m1", {})
    assert list(AuditEntry.objects.values_list("actor", "action", "subject", "detail")) == [wish]
    again = operator.post(f"/api/v1/agents/{agent.pk}/actions/rotate")
    assert (again.status_code, "has a pending request for a new credential" in again.json()["detail"]) == (409, True)
    assert AuditEntry.objects.count() == 1


def test_a_rotation_that_the_audit_log_has_not_is_not_requested(
    operator: APIClient, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: Any) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr("controlplane.jobs.services.audit", full)
    agent = online_agent("m1", rotates=True)
    assert operator.post(f"/api/v1/agents/{agent.pk}/actions/rotate").status_code == 503
    assert Agent.objects.get(pk=agent.pk).rotation_asked_at is None


def test_an_undelivered_rotation_is_withdrawn_in_the_audit_log_too(
    operator: APIClient, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any, **__: Any) -> None:
        raise RedisLost("gone")

    agent = online_agent("m1", rotates=True)
    monkeypatch.setattr("controlplane.api.rotations.ticks.publish", lost)
    assert operator.post(f"/api/v1/agents/{agent.pk}/actions/rotate").status_code == 503
    entries = AuditEntry.objects.order_by("pk").values_list("actor", "action")
    assert list(entries) == [("operator", "agent-rotate"), ("control plane", "agent-rotate-withdrawn")]
    assert Agent.objects.get(pk=agent.pk).rotation_asked_at is None


def test_the_credential_of_a_machine_that_is_away_is_not_rotated_and_the_cure_is_named(operator: APIClient) -> None:
    agent = online_agent("m1", rotates=True)
    agent_disconnected(agent.pk)
    reply = operator.post(f"/api/v1/agents/{agent.pk}/actions/rotate")
    assert (reply.status_code, reply.json()["detail"]) == (
        409,
        "agent 'm1' is offline, and a new credential is sent over its connection: try again once it is back, or let it "
        "join again with a token, from: python manage.py enroll --name m1; that ends the old one",
    )
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("name", ["m1\n", "m\x1b[2J", "\u202em1"])
def test_a_machine_s_name_holds_no_control_characters(admin: APIClient, anybody: APIClient, name: str) -> None:
    token = admin.post("/api/v1/agents/enrolment-tokens", {}, format="json").json()["token"]
    found = refused(anybody.post("/api/v1/agents/enrol", {"token": token, "name": name}, format="json"))
    assert (found["status"], found["field"]) == (400, "name")


@pytest.mark.parametrize("labels", [{"gpu\n": "a"}, {"gpu": "a\x1b[2J"}, {"": "a"}, {str(n): "" for n in range(65)}])
def test_labels_are_few_and_hold_no_control_characters(admin: APIClient, labels: dict[str, str]) -> None:
    found = refused(admin.post("/api/v1/agents/enrolment-tokens", {"labels": labels}, format="json"))
    assert (found["status"], found["field"].partition(".")[0]) == (400, "labels")


def test_an_invitation_names_the_machine_that_it_is_for(admin: APIClient, anybody: APIClient) -> None:
    asked = {"name": "m 1", "labels": {"gpu": "a100"}}
    made = admin.post("/api/v1/agents/enrolment-tokens", asked, format="json").json()
    assert made["command"].endswith("- --slots 1 --name 'm 1'")
    assert AuditEntry.objects.get().detail == asked
    found = refused(anybody.post("/api/v1/agents/enrol", {"token": made["token"], "name": "m2"}, format="json"))
    assert (found["status"], found["detail"]) == (
        403,
        "this enrolment token is for machine 'm 1', and 'm2' asks: join as that one",
    )
    reply = anybody.post("/api/v1/agents/enrol", {"token": made["token"], "name": "m 1"}, format="json")
    assert reply.status_code == 201


def test_a_known_machine_is_not_taken_over_by_a_token_for_any(anybody: APIClient) -> None:
    agent_disconnected(online_agent("m1").pk)
    token, _ = token_create(labels={})
    found = refused(anybody.post("/api/v1/agents/enrol", {"token": token, "name": "m1"}, format="json"))
    assert (found["status"], found["detail"].rpartition(": ")[2]) == (409, "python manage.py enroll --name m1")


def test_a_machine_shows_which_labels_are_only_its_own_word(viewer: APIClient) -> None:
    agent = online_agent("m1", labels={"zone": "b"})
    agent_connected(agent.pk, hello("m1", labels={"zone": "b", "cpu": "fast"}))
    shown = viewer.get(f"/api/v1/agents/{agent.pk}").json()
    assert (shown["labels"], shown["unverified_labels"]) == ({"zone": "b"}, {"cpu": "fast"})


def test_a_fleet_joins_on_one_invitation_that_is_listed_and_revoked(admin: APIClient, anybody: APIClient) -> None:
    asked = {"uses": 2, "labels": {"pool": "a100"}, "lifetime_s": 7200, "remove_after_s": 3600}
    made = admin.post("/api/v1/agents/enrolment-tokens", asked, format="json").json()
    joined = anybody.post("/api/v1/agents/enrol", {"token": made["token"], "name": "m1"}, format="json")
    (row,) = admin.get("/api/v1/agents/enrolment-tokens").json()["results"]
    assert joined.status_code == 201
    assert (row["id"], row["uses"], row["used"], row["remove_after_s"], row["is_valid_now"]) == (
        made["id"],
        2,
        1,
        3600,
        True,
    )
    assert made["token"] not in str(row)
    anybody.post("/api/v1/agents/enrol", {"token": made["token"], "name": "m2"}, format="json")
    (row,) = admin.get("/api/v1/agents/enrolment-tokens").json()["results"]
    assert (row["used"], row["is_valid_now"]) == (2, True), "its machines may join again"
    path = f"/api/v1/agents/enrolment-tokens/{made['id']}"
    assert [admin.delete(path).status_code, admin.delete(path).status_code] == [204, 409]
    found = refused(anybody.post("/api/v1/agents/enrol", {"token": made["token"], "name": "m3"}, format="json"))
    assert (found["status"], "was revoked at" in found["detail"]) == (403, True)
    actions = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
    assert actions == ["agent-invite", "agent-enrol", "agent-enrol", "agent-uninvite"]


def test_a_name_is_for_one_machine(admin: APIClient) -> None:
    found = refused(admin.post("/api/v1/agents/enrolment-tokens", {"uses": 2, "name": "m1"}, format="json"))
    assert (found["status"], found["field"]) == (400, "uses")


def refusal_of(reply: Any, status: int) -> str:
    """What a refusal of that status says."""
    body = refused(reply)
    assert body["status"] == status
    return str(body["detail"])


def test_a_pod_joins_by_its_service_account(anybody: APIClient, tmp_path: Path, settings: Any) -> None:
    certificates = make_certificates(tmp_path)
    enrolment._reviewer.cache_clear()
    with ApiServer(certificates) as api:
        settings.KUBERNETES = Cluster(
            accounts=parse_accounts("paceline/agents:pool=default"),
            api=api.url,
            ca=certificates.ca,
            token=own_token(tmp_path),
            remove_after=timedelta(hours=1),
        )
        token = api.issue("paceline", "agents", "agents-0")
        join = partial(anybody.post, "/api/v1/agents/enrol", format="json")
        reply = join({"token": token, "name": "agents-0"})
        assert reply.status_code == 201, reply.json()
        agent = agent_by_credential(reply.json()["credential"])
        assert agent is not None
        assert (agent.name, agent.labels, agent.remove_after) == ("agents-0", {"pool": "default"}, timedelta(hours=1))
        entry = AuditEntry.objects.get()
        assert (entry.action, entry.detail) == ("agent-enrol", {"pod": "paceline/agents/agents-0"})
        assert "join with --name $(POD_NAME)" in refusal_of(join({"token": token, "name": "m1"}), 403)
        stranger = api.issue("elsewhere", "agents", "agents-0")
        assert "PACELINE_KUBERNETES_ACCOUNTS lists paceline/agents" in refusal_of(
            join({"token": stranger, "name": "agents-0"}), 403
        )
        api.own = "another"
        late = join({"token": api.issue("paceline", "agents", "agents-1"), "name": "agents-1"})
        assert "system:auth-delegator" in refusal_of(late, 503)
        assert late["Retry-After"] == "5"
    enrolment._reviewer.cache_clear()


def test_where_no_pod_may_join_its_token_is_refused_with_the_cure(anybody: APIClient) -> None:
    reply = anybody.post("/api/v1/agents/enrol", {"token": "a.b.c", "name": "agents-0"}, format="json")
    assert "set PACELINE_KUBERNETES_ACCOUNTS (docs/clusters.md), or use a token from" in refusal_of(reply, 403)
