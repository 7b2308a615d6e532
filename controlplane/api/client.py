"""Provides management commands with an API token."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.contrib.auth.models import Group, User

from controlplane.jobs.roles import Role
from controlplane.people.tokens import token_create

SERVICE_USER = "command-line"


@contextmanager
def local_token(lifetime: timedelta = timedelta(days=7)) -> Iterator[str]:
    """A token of the operator ``command-line`` for the duration of the block."""
    user, created = User.objects.get_or_create(username=SERVICE_USER)
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    user.groups.add(Group.objects.get_or_create(name=Role.OPERATOR)[0])
    row, token = token_create(user=user, name="manage.py submit", actor=SERVICE_USER, lifetime=lifetime)
    try:
        yield token
    finally:
        row.delete()
