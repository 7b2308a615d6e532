"""Who may do what."""

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User

from controlplane.jobs.roles import Role, may, role_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("roles")]


def test_the_groups_are_there() -> None:
    assert set(Group.objects.values_list("name", flat=True)) >= {"viewer", "operator", "admin"}


def test_the_highest_group_is_the_role() -> None:
    user = User.objects.create_user("ada")
    roles = [role_of(user)]
    for role in Role:
        user.groups.add(Group.objects.get(name=role))
        roles.append(role_of(user))
    assert roles == [None, Role.VIEWER, Role.OPERATOR, Role.ADMIN]


def test_superusers_are_admins_and_who_left_is_no_one() -> None:
    root, gone = User.objects.create_superuser("root"), User.objects.create_superuser("gone", is_active=False)
    assert [role_of(root), role_of(gone), role_of(AnonymousUser())] == [Role.ADMIN, None, None]


def test_a_role_may_what_those_below_it_may() -> None:
    user = User.objects.create_user("ada")
    user.groups.add(Group.objects.get(name=Role.OPERATOR))
    assert [may(user, role) for role in Role] == [True, True, False]
