"""Registers the live driver with Django, so that it finds the commands."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class RuntimeConfig(AppConfig):
    """The live driver."""

    name = "controlplane.runtime"
    label = "runtime"

    def ready(self) -> None:
        """Make ``migrate`` refuse a database of a newer release; services start only after it."""
        pre_migrate.connect(refuse_newer_database, sender=self)


def refuse_newer_database(**_: Any) -> None:
    """End ``migrate`` before it changes anything.

    Raises:
        CommandError: if the database has migrations that this release does not have.
    """
    from django.core.management.base import CommandError

    from controlplane.runtime.upgrading import migrations, newer_database

    unknown, _pending = migrations()
    if unknown:
        raise CommandError(newer_database(unknown))
