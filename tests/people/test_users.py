"""Accounts: listed to admins, disabled with all that is theirs, and every change of one in the audit log."""

import io
import json
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from rest_framework.test import APIClient

from controlplane.fleet.readonly import ReadOnlyAdmin
from controlplane.jobs.login_links import issue_login_link
from controlplane.jobs.models import AuditEntry
from controlplane.jobs.roles import Role
from controlplane.people.admin import Audited
from controlplane.people.models import Identity, Session
from controlplane.people.tokens import token_create
from controlplane.people.users import SwitchRefused, line_of, user_disable, user_enable, users_listed
from tests.support.rows import online_agent

pytestmark = pytest.mark.django_db

PASSWORD = "a-long-and-plain-sentence"


def person(name: str, role: Role | None = Role.OPERATOR, **more: Any) -> User:
    user = User.objects.create_user(name, **more)
    if role:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


def bearer(user: User) -> dict[str, str]:
    _, secret = token_create(user=user, name="mine", actor=user.username)
    return {"Authorization": f"Bearer {secret}"}


def actions(*leave_out: str) -> list[tuple[str, str, str]]:
    rows = AuditEntry.objects.order_by("pk").exclude(action__in=("token-create", "login", *leave_out))
    return list(rows.values_list("actor", "action", "subject"))


def test_a_switched_off_account_is_let_in_in_no_way() -> None:
    person("root", Role.ADMIN)
    eve = person("eve", password=PASSWORD)
    token, browser = bearer(eve), Client()
    browser.get(issue_login_link(eve))
    assert browser.get("/jobs/").status_code == 200
    link = issue_login_link(eve)
    assert user_disable(user=eve, actor="root")
    assert not user_disable(user=eve, actor="root"), "it is off"
    assert Client().get("/api/v1/jobs", headers=token).status_code == 401
    assert browser.get("/jobs/").status_code == 302
    assert not Session.objects.filter(user=eve).exists()
    assert Client().get(link).status_code == 403
    refused = Client().post("/login/", {"username": "eve", "password": PASSWORD})
    assert refused.status_code == 200
    assert actions("login-failed")[-3:] == [
        ("root", "session-end", f"session {AuditEntry.objects.get(action='session-end').subject.split()[1]}"),
        ("root", "token-revoke", AuditEntry.objects.get(action="token-revoke").subject),
        ("root", "user-disable", "user eve"),
    ]
    assert AuditEntry.objects.get(action="user-disable").detail == {"sessions": 1, "tokens": 1}


def test_an_account_that_is_switched_on_again_has_nothing_of_before() -> None:
    person("root", Role.ADMIN)
    eve = person("eve", password=PASSWORD)
    token = bearer(eve)
    user_disable(user=eve, actor="root")
    assert user_enable(user=eve, actor="root")
    assert not user_enable(user=eve, actor="root")
    assert Client().get("/api/v1/jobs", headers=token).status_code == 401
    assert Client().post("/login/", {"username": "eve", "password": PASSWORD}).status_code == 302


def test_no_one_shuts_all_admins_out() -> None:
    root = person("root", Role.ADMIN)
    with pytest.raises(SwitchRefused, match="this is your own account"):
        user_disable(user=root, actor="root")
    with pytest.raises(SwitchRefused, match="root is the only admin: make another one first"):
        user_disable(user=root, actor="me (command line)")
    other = person("other", None, is_superuser=True)
    assert user_disable(user=root, actor="other")
    with pytest.raises(SwitchRefused, match="other is the only admin"):
        user_disable(user=other, actor="me (command line)")


def test_the_list_reports_who_signs_in_how_and_what_is_valid() -> None:
    eve, bob = person("eve", password=PASSWORD), person("bob", None)
    Identity.objects.create(user=bob, issuer="https://id", subject="7")
    bearer(eve)
    bearer(eve)
    Client().get(issue_login_link(eve))
    lines = {line.username: line for line in map(line_of, users_listed())}
    assert (lines["eve"].role, lines["eve"].tokens, lines["eve"].sessions) == (Role.OPERATOR, 2, 1)
    assert (lines["eve"].password, lines["eve"].provider) == (True, False)
    assert (lines["bob"].role, lines["bob"].password, lines["bob"].provider) == (None, False, True)


def test_the_list_takes_few_queries_however_many_there_are(django_assert_max_num_queries: Any) -> None:
    for number in range(20):
        person(f"user-{number}")
    with django_assert_max_num_queries(2):
        assert len([line_of(user) for user in users_listed()]) == 20


def test_admins_list_and_switch_over_rest() -> None:
    asks = APIClient(raise_request_exception=False)
    asks.credentials(HTTP_AUTHORIZATION=bearer(person("root", Role.ADMIN))["Authorization"])
    person("eve@example.org")
    rows = asks.get("/api/v1/users").json()["results"]
    assert [(row["username"], row["role"], row["active"], row["tokens"]) for row in rows] == [
        ("eve@example.org", "operator", True, 0),
        ("root", "admin", True, 1),
    ]
    path = "/api/v1/users/eve@example.org/actions/{}"
    assert asks.post(path.format("disable")).json()["active"] is False
    assert asks.post(path.format("disable")).json()["detail"] == ("the account 'eve@example.org' is already disabled")
    assert asks.post(path.format("enable")).json()["active"] is True
    assert asks.post(path.format("enable")).status_code == 409
    assert asks.post("/api/v1/users/nobody/actions/disable").status_code == 404
    own = asks.post("/api/v1/users/root/actions/disable")
    assert (own.status_code, own.json()["detail"]) == (
        409,
        "this is your own account: another admin can disable it",
    )


def command(*arguments: str) -> str:
    output = io.StringIO()
    call_command("users", *arguments, stdout=output)
    return output.getvalue()


def test_the_command_lists_and_switches() -> None:
    person("root", Role.ADMIN, password=PASSWORD)
    person("eve", None)
    assert "root: admin; password; last sign-in never; 0 tokens, 0 sessions" in command()
    assert "eve: no role, disabled; login links" in command("disable", "eve")
    assert [row["active"] for row in json.loads(command("--json"))] == [False, True]
    assert "eve: no role; login links" in command("enable", "eve")
    for arguments, sentence in (
        (("enable", "eve"), "is enabled already"),
        (("disable", "bob"), "there is no user 'bob'"),
        (("disable", "root"), "root is the only admin"),
    ):
        with pytest.raises(CommandError, match=sentence):
            command(*arguments)


def test_changes_in_djangos_admin_are_in_the_audit_log() -> None:
    root = person("root", None, is_superuser=True, is_staff=True)
    eve, browser = person("eve"), Client()
    browser.force_login(root)
    path = f"/admin/auth/user/{eve.pk}/change/"
    form = {"username": "eve", "groups": [Group.objects.get(name="operator").pk], "date_joined_0": "2026-01-01"}
    form |= {"date_joined_1": "12:00:00", "last_login_0": "", "last_login_1": ""}
    reply = browser.post(path, form)
    assert reply.status_code == 302, reply.content.decode()[:2000]
    entry = AuditEntry.objects.get(action="user-change")
    assert (entry.actor, entry.subject) == ("root", "user eve")
    assert entry.detail["active"] is False
    assert entry.detail["groups"] == ["operator"]
    assert not User.objects.get(pk=eve.pk).is_active
    reply = browser.post(
        "/admin/auth/user/", {"action": "delete_selected", "_selected_action": [eve.pk], "post": "yes"}
    )
    assert reply.status_code == 302
    assert ("root", "user-delete", "user eve") in actions()
    assert not User.objects.filter(pk=eve.pk).exists()


def test_every_change_in_djangos_admin_is_audited() -> None:
    unaudited = [
        each
        for each in admin.site._registry.values()
        if not isinstance(each, Audited) and (not isinstance(each, ReadOnlyAdmin) or each.may_delete)
    ]
    assert unaudited == []


def test_a_machine_that_is_removed_in_djangos_admin_is_in_the_audit_log() -> None:
    browser, agent = Client(), online_agent("m1")
    browser.force_login(person("root", None, is_superuser=True, is_staff=True))
    assert browser.post(f"/admin/fleet/agent/{agent.pk}/delete/", {"post": "yes"}).status_code == 302
    assert actions() == [("root", "agent-delete", "agent m1")]
    assert browser.get("/admin/knox/authtoken/add/").status_code == 403
