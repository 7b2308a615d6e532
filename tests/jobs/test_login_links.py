"""Links that sign in once."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core import signing
from django.utils import timezone

from controlplane.jobs import login_links
from controlplane.jobs.login_links import from_loopback, issue_login_link, redeem

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada")


def token_of(link: str) -> str:
    head, middle, token, tail = link.rsplit("/", 3)
    assert (head, middle, tail) == ("/login", "once", "")
    return token


def test_a_link_signs_in_once(ada: User) -> None:
    token = token_of(issue_login_link(ada))
    assert [redeem(token), redeem(token)] == [ada, None]


def test_another_login_ends_it(ada: User) -> None:
    token = token_of(issue_login_link(ada))
    User.objects.update(last_login=timezone.now())
    assert redeem(token) is None


def test_it_ends_after_five_minutes(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    token = token_of(issue_login_link(ada))
    monkeypatch.setattr(login_links, "LIFETIME", timedelta(seconds=-1))
    assert redeem(token) is None


def test_who_left_is_not_let_in(ada: User) -> None:
    token = token_of(issue_login_link(ada))
    User.objects.update(is_active=False)
    assert redeem(token) is None


def test_a_made_up_link_is_refused(ada: User) -> None:
    other_use = signing.dumps({"user": ada.pk, "after": ""}, salt="something else")
    assert [redeem("made-up"), redeem(other_use), redeem("")] == [None, None, None]


@pytest.mark.parametrize(
    ("address", "here"), [("127.0.0.1", True), ("::1", True), ("10.0.0.7", False), ("", False), ("unix", False)]
)
def test_only_this_machine_counts_as_loopback(address: str, here: bool) -> None:
    assert from_loopback(address) is here
