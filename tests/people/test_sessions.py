"""Sessions: whose, from where, and ended."""

import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from controlplane.gateway import page_sessions
from controlplane.gateway.page_sessions import admitted, owners
from controlplane.jobs.login_links import issue_login_link
from controlplane.jobs.models import AuditEntry, Job
from controlplane.people.models import Membership, Session, Team
from controlplane.people.sessions import SessionStore, live_sessions, sessions_end
from controlplane.people.tokens import live_tokens, token_create

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", is_superuser=True)


def signed_in(user: User, browser: str = "Firefox") -> Client:
    client = Client()
    client.get(issue_login_link(user), headers={"User-Agent": browser})
    return client


def test_a_session_reports_whose_it_is_and_where_it_began(ada: User) -> None:
    signed_in(ada, "x" * 300)
    row = live_sessions(ada).get()
    assert (row.address, row.browser, row.signed_in_at is None) == ("127.0.0.1", "x" * 200, False)


def test_its_number_is_not_its_key(ada: User) -> None:
    signed_in(ada)
    row = live_sessions(ada).get()
    assert row.number not in row.session_key
    assert (len(row.number), row.session_key in row.number) == (16, False)


def test_a_row_is_read_by_the_session_engine_of_the_settings(ada: User) -> None:
    signed_in(ada)
    row = live_sessions(ada).get()
    assert row.get_session_store_class() is SessionStore
    assert row.get_decoded()["_auth_user_id"] == str(ada.pk)


def test_an_ended_session_is_signed_out_in_pages_and_sockets(ada: User) -> None:
    here, there = signed_in(ada), signed_in(ada)
    key = there.cookies["sessionid"].value
    assert admitted([key]) == {key: None}
    assert sessions_end(live_sessions(ada).filter(session_key=key), actor="root") == 1
    assert admitted([key]) == {}
    assert (here.get("/").status_code, there.get("/").status_code) == (200, 302)
    entry = AuditEntry.objects.get(action="session-end")
    assert (entry.actor, entry.detail) == ("root", {"user": "ada"})


def test_signing_out_takes_the_row_away(ada: User) -> None:
    signed_in(ada).post("/logout/")
    assert not Session.objects.exists()


async def test_an_awaited_session_is_the_same() -> None:
    store = SessionStore()
    await store.aset("one", 1)
    row = await store.acreate_model_instance({"one": 1})
    assert (row.user_id, len(row.number)) == (None, 16)


def credentials(*arguments: str) -> dict[str, list[dict[str, object]]]:
    output = io.StringIO()
    call_command("credentials", *arguments, "--json", stdout=output, stderr=io.StringIO())
    found: dict[str, list[dict[str, object]]] = json.loads(output.getvalue())
    return found


def test_the_command_lists_and_ends_both(ada: User) -> None:
    signed_in(ada)
    row, _ = token_create(user=ada, name="nightly", actor="ada")
    found = credentials("--user", "ada")
    assert [(each["id"], each["name"]) for each in found["tokens"]] == [(row.token_key, "nightly")]
    assert credentials("--end", row.token_key, str(found["sessions"][0]["id"])) == {"tokens": [], "sessions": []}


def test_the_command_ends_all_of_one_user_alone(ada: User) -> None:
    eve = User.objects.create_user("eve")
    for user in (ada, eve):
        signed_in(user)
        token_create(user=user, name="one", actor="x")
    assert credentials("--user", "ada", "--end-all") == {"tokens": [], "sessions": []}
    assert (live_tokens(eve).count(), live_sessions(eve).count()) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--end-all",), "expected the user to revoke"),
        (("--user", "nobody"), "there is no user 'nobody'"),
        (("--end", "made-up"), "there is no token or session made-up; nothing was revoked"),
    ],
)
def test_what_is_not_there_is_reported(arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        call_command("credentials", *arguments)


def test_people_read_what_is_there(ada: User, capsys: pytest.CaptureFixture[str]) -> None:
    token_create(user=ada, name="nightly", actor="ada")
    call_command("credentials")
    assert "tokens: 1" in (printed := capsys.readouterr().out)
    assert "name=nightly" in printed


def test_the_queries_for_who_may_listen_do_not_grow_with_their_number(
    django_assert_max_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    vision = Team.objects.create(name="vision")
    viewers = Group.objects.get_or_create(name="viewer")[0]
    keys = []
    for number in range(12):
        user = User.objects.create_user(f"u{number}")
        user.groups.add(viewers)
        Membership.objects.create(team=vision, user=user)
        keys.append(signed_in(user).cookies["sessionid"].value)
    with django_assert_max_num_queries(5):  # sessions, users, groups, memberships, and whether there are teams
        assert admitted(keys) == dict.fromkeys(keys, frozenset({vision.pk}))
    monkeypatch.setattr(page_sessions, "MOST_AT_ONCE", 5)
    with django_assert_max_num_queries(15):
        assert admitted(keys).keys() == set(keys)


def test_owners_of_many_jobs_are_read_in_parts(
    ada: User, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    vision = Team.objects.create(name="vision")
    jobs = [Job.objects.create(name="j", spec={}, submitted_by=ada, team=vision).pk for _ in range(4)]
    monkeypatch.setattr(page_sessions, "MOST_AT_ONCE", 2)
    with django_assert_num_queries(3):
        assert owners([*jobs, 10**6]) == dict.fromkeys(jobs, vision.pk)
