"""Registers the live driver, so that its commands are found."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class RuntimeConfig(AppConfig):
    """The live driver."""

    name = "controlplane.runtime"
    label = "runtime"

    def ready(self) -> None:
        """Have ``migrate`` refuse a database of a newer release: services start behind it."""
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
