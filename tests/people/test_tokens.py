"""API tokens: named, limited in role and number, with their last use."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError, transaction
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


def test_no_one_gives_a_token_more_than_they_have(ada: User) -> None:
    with pytest.raises(TokenRefused, match="the role admin is above the role of ada here, operator"):
        token_create(user=ada, name="root", actor="ada", role=Role.ADMIN)


def test_a_limited_token_makes_no_wider_one(ada: User) -> None:
    ada.role_limit = Role.VIEWER  # type: ignore[attr-defined]
    assert role_of(ada) == Role.VIEWER
    with pytest.raises(TokenRefused, match="above the role of ada here, viewer"):
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


def test_a_use_that_cannot_be_stored_refuses_no_one(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_another_address_within_minutes_is_not_written(
    ada: User, django_assert_num_queries: Callable[[int], AbstractContextManager[object]]
) -> None:
    token_create(user=ada, name="one", actor="ada")
    token_used(AuthToken.objects.get(), "192.0.2.1")
    row = AuthToken.objects.select_related("grant").get()
    with django_assert_num_queries(0):
        for address in ("192.0.2.2", "192.0.2.1", "192.0.2.2"):
            token_used(row, address)


def test_a_token_s_child_expires_no_later_than_itself(ada: User) -> None:
    parent, _ = token_create(user=ada, name="parent", actor="ada", lifetime=timedelta(minutes=5))
    child, _ = token_create(user=ada, name="child", actor="ada", lifetime=timedelta(days=366), parent=parent)
    shorter, _ = token_create(user=ada, name="shorter", actor="ada", lifetime=timedelta(minutes=1), parent=parent)
    assert (child.expiry, child.grant.parent) == (parent.expiry, parent)
    assert shorter.expiry < parent.expiry


def test_a_revoked_token_takes_its_children_along(ada: User) -> None:
    parent, _ = token_create(user=ada, name="parent", actor="ada")
    child, _ = token_create(user=ada, name="child", actor="ada", parent=parent)
    grandchild, _ = token_create(user=ada, name="grandchild", actor="ada", parent=child)
    other, _ = token_create(user=ada, name="other", actor="ada")
    assert tokens_revoke(live_tokens(ada).filter(pk=parent.pk), actor="root") == 3
    assert list(live_tokens(ada)) == [other]
    entries = AuditEntry.objects.filter(action="token-revoke").order_by("id")
    assert [entry.subject for entry in entries] == [f"token {row.token_key}" for row in (parent, child, grandchild)]
    assert "with" not in entries[0].detail
    assert {entry.detail["with"] for entry in entries[1:]} == {f"token {parent.token_key}"}


def test_a_token_that_is_deleted_elsewhere_takes_its_children_along(ada: User) -> None:
    parent, _ = token_create(user=ada, name="parent", actor="ada")
    child, _ = token_create(user=ada, name="child", actor="ada", parent=parent)
    token_create(user=ada, name="grandchild", actor="ada", parent=child)
    parent.delete()
    assert not AuthToken.objects.exists()
    assert not TokenGrant.objects.exists()


def test_a_token_that_was_revoked_meanwhile_makes_none(ada: User) -> None:
    parent, _ = token_create(user=ada, name="parent", actor="ada")
    tokens_revoke(live_tokens(ada), actor="root")
    with pytest.raises(TokenRefused, match="the token of this request was revoked"):
        token_create(user=ada, name="child", actor="ada", parent=parent)


def test_revoking_is_audited_with_the_owner(ada: User) -> None:
    row, _ = token_create(user=ada, name="one", actor="ada")
    assert tokens_revoke(live_tokens(ada), actor="root") == 1
    entry = AuditEntry.objects.get(action="token-revoke")
    assert (entry.actor, entry.subject, entry.detail) == ("root", f"token {row.token_key}", {"user": "ada"})


def test_a_token_and_its_child_are_revoked_once_each(ada: User) -> None:
    parent, _ = token_create(user=ada, name="parent", actor="ada")
    token_create(user=ada, name="child", actor="ada", parent=parent)
    for rows in (live_tokens(ada), live_tokens(ada).reverse()):
        with transaction.atomic():
            AuditEntry.objects.all().delete()
            assert tokens_revoke(rows, actor="root") == 2
            assert AuditEntry.objects.filter(action="token-revoke").count() == 2
            transaction.set_rollback(True)
