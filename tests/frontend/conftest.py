"""People of each role, signed in."""

import pytest
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.test import Client


@pytest.fixture(autouse=True)
def _nothing_cached() -> None:
    cache.clear()


def signed_in(role: str) -> Client:
    """A browser of somebody who has that role, or none."""
    user = User.objects.create(username=role or "nobody")
    if role:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def viewer(db: None) -> Client:
    return signed_in("viewer")


@pytest.fixture
def operator(db: None) -> Client:
    return signed_in("operator")


@pytest.fixture
def admin(db: None) -> Client:
    return signed_in("admin")
