"""Signing in over the web: throttled wherever passwords are checked, and recorded."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from controlplane.jobs.login_links import issue_login_link
from controlplane.jobs.models import AuditEntry
from controlplane.people.throttle import PER_ACCOUNT_AND_NETWORK

pytestmark = pytest.mark.django_db

PASSWORD = "pace-line-1"


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", password=PASSWORD, is_superuser=True)


@pytest.fixture(autouse=True)
def _fast_hashes(settings: object) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # type: ignore[attr-defined]


def guess(client: Client, password: str = "wrong", address: str = "192.0.2.1") -> tuple[int, str]:
    reply = client.post("/login/", {"username": "ada", "password": password}, REMOTE_ADDR=address)
    return reply.status_code, reply.content.decode()


def recorded() -> list[tuple[str, str, str, object]]:
    return list(AuditEntry.objects.order_by("id").values_list("actor", "action", "subject", "detail"))


def test_guessing_a_password_ends_after_a_few(ada: User, client: Client) -> None:
    assert {guess(client)[0] for _ in range(PER_ACCOUNT_AND_NETWORK)} == {200}
    status, page = guess(client, PASSWORD)
    assert (status, "Too many failed sign-ins. Try again in 15 min." in page) == (429, True)
    assert guess(Client(), PASSWORD, address="192.0.2.2")[0] == 302


def test_a_refusal_reports_when_to_come_back(ada: User, client: Client) -> None:
    for _ in range(PER_ACCOUNT_AND_NETWORK):
        guess(client)
    reply = client.post("/login/", {"username": "ada", "password": "wrong"}, REMOTE_ADDR="192.0.2.1")
    assert 800 < int(reply["Retry-After"]) <= 900


def test_the_admin_s_form_checks_no_passwords(ada: User, client: Client) -> None:
    reply = client.post("/admin/login/?next=/admin/jobs/", {"username": "ada", "password": PASSWORD})
    assert (reply.status_code, reply["Location"]) == (302, "/login/?next=/admin/jobs/")
    assert "sessionid" not in client.cookies


def test_who_is_no_member_of_staff_is_notified(client: Client) -> None:
    client.force_login(User.objects.create_user("eve"))
    assert client.get("/admin/", follow=True).status_code == 403


def test_failures_and_logins_are_recorded_with_their_address(ada: User, client: Client) -> None:
    guess(client)
    guess(client, PASSWORD, address="192.0.2.2")
    client.post("/logout/", REMOTE_ADDR="192.0.2.2")
    assert recorded() == [
        ("anonymous", "login-failed", "user ada", {"address": "192.0.2.1"}),
        ("ada", "login", "user ada", {"address": "192.0.2.2", "by": "password"}),
        ("ada", "logout", "user ada", {"address": "192.0.2.2"}),
    ]


def test_a_login_by_link_is_recorded(ada: User, client: Client) -> None:
    client.get(issue_login_link(ada))
    assert recorded() == [("ada", "login", "user ada", {"address": "127.0.0.1", "by": "link"})]


def test_a_password_that_was_typed_as_a_name_is_not_recorded(client: Client) -> None:
    client.post("/login/", {"username": "my-secret-password", "password": "x"})
    assert recorded() == [("anonymous", "login-failed", "no such user", {"address": "127.0.0.1"})]


def test_the_trail_does_not_grow_while_a_client_is_refused(ada: User, client: Client) -> None:
    for _ in range(150):
        guess(client)
    entries = recorded()
    assert len(entries) == PER_ACCOUNT_AND_NETWORK
    assert entries[-1][3] == {"address": "192.0.2.1", "blocked_s": 900}


def test_an_account_that_is_switched_off_gets_no_session(ada: User, client: Client) -> None:
    User.objects.update(is_active=False)
    assert guess(client, PASSWORD)[0] == 200
    assert "sessionid" not in client.cookies


def test_a_link_behind_a_proxy_counts_where_it_is_opened(ada: User, client: Client, settings: object) -> None:
    settings.TRUSTED_PROXIES = 1  # type: ignore[attr-defined]
    assert client.get(issue_login_link(ada), HTTP_X_FORWARDED_FOR="192.0.2.7").status_code == 403
