"""``manage.py reseal``: re-encrypts keys with the current ``SECRET_KEY``; then the previous one can be removed."""

from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from django.db import models, transaction

from controlplane.jobs.sealing import SealBroken, is_current, resealed


class Command(BaseCommand):
    """Re-encrypts all keys or none. Jobs can run meanwhile, since the keys themselves do not change."""

    help = "Encrypt keys in the database with the current SECRET_KEY; SECRET_KEY_FALLBACKS names earlier ones."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Nothing is needed."""
        parser.add_argument(
            "--check", action="store_true", help="change nothing; fail if keys are under another secret"
        )

    def handle(self, *args: Any, check: bool = False, **options: Any) -> None:
        """Print the number of keys.

        Raises:
            CommandError: if one cannot be decrypted, or with ``--check`` is stored under another ``SECRET_KEY``.
        """
        columns = [(model, name) for model in apps.get_models() for name in getattr(model, "SEALED", ())]
        if check and (others := _others(columns)):
            raise CommandError(
                f"{others} keys are stored under another SECRET_KEY: run manage.py reseal before it leaves "
                "SECRET_KEY_FALLBACKS"
            )
        while not check and _pass(
            columns
        ):  # again for what was stored meanwhile, by processes that still have the previous one
            pass
        count = sum(model._default_manager.count() for model, _ in columns)
        self.stdout.write(f"{count} keys are stored under the present SECRET_KEY")


def _others(columns: list[tuple[type[models.Model], str]]) -> int:
    """The number of keys that are not encrypted with the current secret."""
    stored = (key for model, name in columns for key in model._default_manager.values_list(name, flat=True))
    return sum(not is_current(key) for key in stored)


@transaction.atomic
def _pass(columns: list[tuple[type[models.Model], str]]) -> int:
    """Re-encrypt all keys that are not encrypted with the current secret; returns their number.

    Raises:
        CommandError: if a key cannot be decrypted; then nothing is changed.
    """
    count = 0
    for model, name in columns:
        rows = model._default_manager
        for pk, stored in rows.order_by("pk").values_list("pk", name):
            if is_current(stored):
                continue
            try:
                key = resealed(stored)
            except SealBroken as error:
                raise CommandError(f"{model._meta.verbose_name} {pk}: {error}; nothing was changed") from None
            # Only over what was read: another process may have stored something else since.
            rows.filter(**{"pk": pk, name: stored}).update(**{name: key})
            count += 1
    return count
