"""Registers the live driver with Django, so that it finds the commands."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class RuntimeConfig(AppConfig):
    """The live driver."""

    name = "controlplane.runtime"
    label = "runtime"

    def ready(self) -> None:
        """Make every ``migrate`` look first: that of ``upgrade`` and ``up``, in containers and in Kubernetes.

        Services start only after it.
        """
        pre_migrate.connect(look_first, sender=self)


def look_first(*, verbosity: int = 0, stdout: Any = None, **_: Any) -> None:
    """End ``migrate`` before it changes anything, or print what it will do.

    Raises:
        CommandError: if something prevents it.
    """
    from django.core.management.base import CommandError

    from controlplane.runtime.upgrading import look

    upgrade = look()
    if upgrade.refusals:
        raise CommandError("\n".join(upgrade.refusals))
    if verbosity and stdout is not None and upgrade.pending and upgrade.live:
        stdout.write(" ".join(upgrade.notices))
