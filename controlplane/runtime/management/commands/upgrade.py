"""``manage.py upgrade``: lists the effects of an upgrade to this release, and performs it if nothing prevents it."""

from argparse import ArgumentParser
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from controlplane.protocol import RELEASE
from controlplane.runtime.upgrading import look


class Command(BaseCommand):
    """Checks first: an unsupported database is not changed."""

    help = "Upgrade the database to this release, after a check for problems; --check: only check."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add ``--check``."""
        parser.add_argument(
            "--check", action="store_true", help="only check; exit code 1 if something prevents the upgrade"
        )

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        """Print the findings, and migrate.

        Raises:
            CommandError: if something prevents the upgrade; then nothing is changed.
        """
        upgrade = look()
        if upgrade.obstacles:
            raise CommandError("\n".join(upgrade.obstacles))
        self.stdout.write(f"To release {RELEASE}. " + " ".join(upgrade.notices))
        if not check:
            call_command("migrate", interactive=False, verbosity=0)
            self.stdout.write("The database was upgraded: start this release's services.")
