"""``manage.py reseal``: stores job keys under the current ``SECRET_KEY``; then the previous one can be removed."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from controlplane.jobs.models import Job
from controlplane.jobs.sealing import SealBroken, resealed


class Command(BaseCommand):
    """Re-encrypts all keys or none, while jobs run: the keys themselves do not change."""

    help = "Encrypt job keys in the database with the present SECRET_KEY; SECRET_KEY_FALLBACKS names earlier ones."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Print how many keys there were."""
        count = 0
        try:
            with transaction.atomic():
                for pk, stored in Job.objects.order_by("pk").values_list("pk", "key"):
                    Job.objects.filter(pk=pk).update(key=resealed(stored))
                    count += 1
        except SealBroken as error:
            raise CommandError(f"job {pk}: {error}; nothing was changed") from None
        self.stdout.write(f"{count} job keys are stored under the present SECRET_KEY")
