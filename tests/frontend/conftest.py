"""People of each role, signed in."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client


def signed_in(role: str) -> Client:
    """A browser of someone who has that role, or none."""
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
