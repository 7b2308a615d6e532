"""``manage.py access``: who gets in, and how."""

import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

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
    made = document("ada", "--role", "operator")
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


def test_without_a_password_nobody_can_sign_in_with_one() -> None:
    access("ada")
    assert not User.objects.get(username="ada").has_usable_password()


def test_a_password_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("pace-line-1\n"))
    access("ada", "--password-stdin")
    assert User.objects.get(username="ada").check_password("pace-line-1")


def test_a_person_reads_two_lines() -> None:
    first, second = access("ada").splitlines()
    assert first.startswith("API token of ada (operator): ")
    assert second.startswith("Login link, once and within five minutes: http://127.0.0.1:8000/login/once/")


def test_a_user_s_name_holds_no_control_characters() -> None:
    with pytest.raises(CommandError, match="cannot be a user's"):
        access("ada\x1b[2J")
    assert not User.objects.filter(username__startswith="ada").exists()
