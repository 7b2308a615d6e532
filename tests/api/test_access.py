"""``manage.py access``: who gets in, and how."""

import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from knox.models import AuthToken

from controlplane.jobs.models import AuditEntry
from controlplane.jobs.roles import role_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("roles")]


def access(*arguments: str) -> str:
    output = io.StringIO()
    call_command("access", *arguments, stdout=output)
    return output.getvalue()


def document(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(access(*arguments, "--json"))
    return found


def test_a_new_user_gets_a_role_and_a_token_that_works(client: Client) -> None:
    made = document("ada", "--role", "operator", "--token")
    reply = client.get("/api/v1/me", headers={"Authorization": f"Bearer {made['token']}"})
    assert (made["user"], made["role"]) == ("ada", "operator")
    assert reply.json() == {"username": "ada", "role": "operator"}


def test_the_link_signs_in_once(client: Client) -> None:
    path = document("ada")["login_link"].removeprefix("http://127.0.0.1:8000")
    assert client.get(path).status_code == 302
    assert Client().get(path).status_code == 403


def test_a_user_that_exists_keeps_name_and_password(client: Client) -> None:
    User.objects.create_user("ada", password="pace-line-1")
    access("ada", "--role", "admin")
    user = User.objects.get(username="ada")
    assert user.check_password("pace-line-1")
    assert role_of(user) == "admin"


def test_without_a_password_no_one_can_sign_in_with_one() -> None:
    access("ada")
    assert not User.objects.get(username="ada").has_usable_password()


def test_a_password_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("pace-line-1\n"))
    access("ada", "--password-stdin")
    assert User.objects.get(username="ada").check_password("pace-line-1")


def test_a_token_is_made_where_it_is_requested() -> None:
    assert set(document("ada")) == {"user", "role", "login_link"}
    assert AuthToken.objects.count() == 0
    document("ada", "--token")
    assert AuthToken.objects.count() == 1


def test_it_reports_the_role_that_the_user_has() -> None:
    access("ada", "--role", "admin")
    assert document("ada", "--role", "viewer")["role"] == "admin"
    assert document("ada")["role"] == "admin"


def test_each_use_is_in_the_audit_without_secrets() -> None:
    made = document("ada", "--role", "operator", "--token")
    row = AuditEntry.objects.get(action="access")
    assert (row.action, row.subject, row.actor.endswith("(command line)")) == ("access", "user ada", True)
    assert row.detail == {"role": "operator", "password": False, "token": made["token"][:15]}


@pytest.mark.parametrize("password", ["short", "password", "12345678901", "ada-ada-ada", ""])
def test_a_weak_password_is_refused(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
    with pytest.raises(CommandError, match="the password was rejected: "):
        access("ada-ada-ada", "--password-stdin")
    assert not User.objects.filter(username="ada-ada-ada").exists()


def test_an_account_that_is_switched_off_stays_so() -> None:
    User.objects.create_user("ada", is_active=False)
    with pytest.raises(CommandError, match=r"disabled; to enable it: python manage\.py users enable ada$"):
        access("ada", "--token")


def test_a_person_reads_lines() -> None:
    role, token, link = access("ada", "--token").splitlines()
    assert role == "ada has the role operator."
    assert token.startswith("API token, valid for 30 days: ")
    assert link.startswith("Login link, valid once within five minutes: http://127.0.0.1:8000/login/once/")


def test_a_user_s_name_holds_no_control_characters() -> None:
    with pytest.raises(CommandError, match="is not a valid user name"):
        access("ada\x1b[2J")
    assert not User.objects.filter(username__startswith="ada").exists()
