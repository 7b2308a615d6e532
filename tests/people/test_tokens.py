"""API tokens: named, limited in role and number, with their last use."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError
from django.utils import timezone
from knox.models import AuthToken

from controlplane.jobs.models import AuditEntry
from controlplane.jobs.roles import Role, role_of
from controlplane.people import tokens
from controlplane.people.models import TokenGrant
from controlplane.people.tokens import MOST, TokenRefused, live_tokens, token_create, token_used, tokens_revoke

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    user = User.objects.create_user("ada")
    user.groups.add(Group.objects.get_or_create(name=Role.OPERATOR)[0])
    return user


def test_a_user_has_a_bounded_number_of_them(ada: User) -> None:
    for _ in range(MOST):
        token_create(user=ada, name="one", actor="ada")
    with pytest.raises(TokenRefused, match=f"ada has {MOST} valid API tokens"):
        token_create(user=ada, name="one too many", actor="ada")
    AuthToken.objects.filter(pk=AuthToken.objects.all()[0].pk).update(expiry=timezone.now() - timedelta(seconds=1))
    token_create(user=ada, name="in the place of one that expired", actor="ada")


def test_nobody_gives_a_token_more_than_they_have(ada: User) -> None:
    with pytest.raises(TokenRefused, match="the role admin is above that of ada here, operator"):
        token_create(user=ada, name="root", actor="ada", role=Role.ADMIN)


def test_a_limited_token_makes_no_wider_one(ada: User) -> None:
    ada.role_limit = Role.VIEWER  # type: ignore[attr-defined]
    assert role_of(ada) == Role.VIEWER
    with pytest.raises(TokenRefused, match="above that of ada here, viewer"):
        token_create(user=ada, name="wider", actor="ada", role=Role.OPERATOR)
    token_create(user=ada, name="the same", actor="ada")
    assert TokenGrant.objects.get().role == Role.VIEWER


@pytest.mark.parametrize("limit", [None, *Role])
@pytest.mark.parametrize("held", [None, *Role])
def test_a_token_s_role_is_the_lower_of_its_own_and_its_user_s(held: Role | None, limit: Role | None) -> None:
    user = User.objects.create_user("eve")
    if held:
        user.groups.add(Group.objects.get_or_create(name=held)[0])
    user.role_limit = limit  # type: ignore[attr-defined]
    order = [None, *Role]
    expected = min(held, limit or Role.ADMIN, key=order.index)
    assert role_of(user) == expected


def test_the_last_use_is_known_to_a_few_minutes(ada: User) -> None:
    token_create(user=ada, name="one", actor="ada")
    token_used(AuthToken.objects.get(), "192.0.2.1")
    first = TokenGrant.objects.get()
    assert (first.used_from, first.used_at is None) == ("192.0.2.1", False)
    token_used(AuthToken.objects.get(), "192.0.2.1")
    assert TokenGrant.objects.get().used_at == first.used_at
    TokenGrant.objects.update(used_at=timezone.now() - tokens.USE_GRAIN)
    token_used(AuthToken.objects.get(), "192.0.2.1")
    assert TokenGrant.objects.get().used_at >= first.used_at


def test_a_use_that_cannot_be_stored_refuses_nobody(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    token_create(user=ada, name="one", actor="ada")

    def locked(**_: object) -> object:
        raise OperationalError("database is locked")

    monkeypatch.setattr(TokenGrant.objects, "filter", locked)
    token_used(AuthToken.objects.get(), "192.0.2.1")


def test_a_token_of_before_has_all_rights_of_its_user(ada: User) -> None:
    row, _ = AuthToken.objects.create(user=ada)
    assert tokens.limit_of(row) is None
    token_used(row, "192.0.2.1")
    assert live_tokens(ada).get() == row


def test_revoking_is_audited_with_the_owner(ada: User) -> None:
    row, _ = token_create(user=ada, name="one", actor="ada")
    assert tokens_revoke(live_tokens(ada), actor="root") == 1
    entry = AuditEntry.objects.get(action="token-revoke")
    assert (entry.actor, entry.subject, entry.detail) == ("root", f"token {row.token_key}", {"user": "ada"})
