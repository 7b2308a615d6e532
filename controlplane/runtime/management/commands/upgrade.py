"""``manage.py upgrade``: says what an upgrade to this release does, and makes it where nothing is in the way."""

from argparse import ArgumentParser
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from controlplane.protocol import RELEASE
from controlplane.runtime.upgrading import look


class Command(BaseCommand):
    """Looks first; a database that cannot be served is not changed."""

    help = "Upgrade the database to this release, after saying what is in the way; --check: only say it."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add ``--check``."""
        parser.add_argument(
            "--check", action="store_true", help="change nothing; exit code 1 if something is in the way"
        )

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        """Print the findings, and migrate.

        Raises:
            CommandError: if something is in the way; then nothing is changed.
        """
        upgrade = look()
        if upgrade.obstacles:
            raise CommandError("\n".join(upgrade.obstacles))
        self.stdout.write(f"To release {RELEASE}. " + " ".join(upgrade.notices))
        if not check:
            call_command("migrate", interactive=False, verbosity=0)
            self.stdout.write("The database is upgraded: start this release's services.")
