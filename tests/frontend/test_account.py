"""The page of tokens and sessions: one's own, and for admins those of everyone."""

import re

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from controlplane.jobs.login_links import issue_login_link
from controlplane.jobs.roles import Role
from controlplane.people.models import TokenGrant
from controlplane.people.tokens import MOST, token_create

pytestmark = pytest.mark.django_db


def signed_in(name: str, role: Role) -> Client:
    user = User.objects.create_user(name)
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    token_create(user=user, name=f"{name}'s own", actor=name)
    client = Client()
    client.get(issue_login_link(user), headers={"User-Agent": f"Browser of {name}"})
    return client


@pytest.fixture
def eve() -> Client:
    return signed_in("eve", Role.OPERATOR)


@pytest.fixture
def ada() -> Client:
    return signed_in("ada", Role.ADMIN)


def test_people_see_their_own_alone(ada: Client, eve: Client) -> None:
    for query in ("", "?of=everyone"):
        page = eve.get(f"/account/{query}").content.decode()
        assert ("eve&#x27;s own" in page, "Browser of eve" in page, "this browser" in page) == (True, True, True)
        assert "ada&#x27;s own" not in page
        assert "Browser of ada" not in page


def test_an_admin_sees_those_of_everyone(ada: Client, eve: Client) -> None:
    page = ada.get("/account/live/?of=everyone").content.decode()
    assert page.count("Browser of ") == 5, "in a cell and its title; eve's in the dialog's words, too"
    assert "eve&#x27;s own" in page


def test_admins_are_offered_to_switch_accounts_off_and_on(ada: Client, eve: Client) -> None:
    def buttons() -> list[str]:
        page = ada.get("/account/?of=everyone").content.decode()
        return re.findall(r'id="((?:dis|en)able-\d+)"', page)

    number = User.objects.get(username="eve").pk
    assert buttons() == [f"disable-{number}"], "not one's own"
    User.objects.filter(username="eve").update(is_active=False)
    assert buttons() == [f"enable-{number}"]
    assert 'id="users-title"' not in ada.get("/account/").content.decode()


def test_a_token_is_made_and_shown_once(eve: Client) -> None:
    reply = eve.post("/account/token/", {"name": "nightly", "role": "viewer", "days": "7"})
    (secret,) = re.findall(r">([0-9a-f]{64})<", reply.content.decode())
    assert TokenGrant.objects.get(name="nightly").role == "viewer"
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"}).json()["role"] == "viewer"
    assert secret not in eve.get("/account/").content.decode()
    assert reply["Cache-Control"].endswith("private")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": ""}, "name: found '', expected 1 to 100 characters on one line"),
        ({"name": "a\nb"}, "name: found "),
        ({"days": "8"}, "days: found '8', expected one of 1, 7, 30, 90, 365"),
        ({"role": "root"}, "role: found 'root', expected one of viewer, operator, admin"),
    ],
)
def test_what_the_form_never_sends_is_refused(change: dict[str, str], sentence: str, eve: Client) -> None:
    reply = eve.post("/account/token/", {"name": "x", "role": "viewer", "days": "7"} | change)
    assert (reply.status_code, sentence in reply.content.decode()) == (400, True)


def test_a_role_above_one_s_own_and_one_token_too_many_are_refused(eve: Client) -> None:
    asked = {"name": "x", "role": "admin", "days": "7"}
    assert "is above the role of eve" in eve.post("/account/token/", asked).content.decode()
    asked["role"] = "viewer"
    for _ in range(MOST):
        page = eve.post("/account/token/", asked).content.decode()
    assert f"eve has {MOST} valid API tokens" in page


def test_a_visitor_signs_in_first() -> None:
    assert Client().get("/account/").status_code == 302
    assert Client().post("/account/token/").status_code == 302
