"""``manage.py prune``: deletes details of jobs that ended long ago, and expired keys, tokens and samples."""

import json
import re
from argparse import ArgumentParser, ArgumentTypeError
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import BaseCommand
from django.utils import timezone

from controlplane.runtime.pruning import KEEP_JOBS, OLDER_THAN, Limits, prune

UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}


class Command(BaseCommand):
    """Deletes old data; docs/operating.md lists what is kept."""

    help = "Remove events, reports and chunks of jobs that ended long ago, and expired keys, tokens and samples."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the age limits, and the option to only count."""
        parser.add_argument(
            "--older-than", type=age, default=OLDER_THAN, metavar="AGE", help="such as 12h, 30d, 8w (default: 30d)"
        )
        parser.add_argument(
            "--keep-jobs",
            type=number,
            default=KEEP_JOBS,
            metavar="N",
            help="keep everything of the last N jobs that ended (default: %(default)s)",
        )
        parser.add_argument("--dry-run", action="store_true", help="print what would be removed without removing it")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        """Delete or count, and print the result."""
        limits = Limits(now=timezone.now(), older_than=options["older_than"], keep_jobs=options["keep_jobs"])
        progress = (lambda _: None) if options["json"] else (lambda what: self.stderr.write(f"{what} ..."))
        counted = prune(limits, dry_run=options["dry_run"], progress=progress)
        if options["json"]:
            self.stdout.write(json.dumps({"dry_run": options["dry_run"], "removed": counted}))
            return
        verb = "would be removed" if options["dry_run"] else "removed"
        found = ", ".join(f"{rows:,} {name}" for name, rows in counted.items() if rows and name != "jobs")
        self.stdout.write(f"{found} {verb} (of {counted['jobs']} jobs)" if found else "nothing to remove")


def age(text: str) -> timedelta:
    """Parse a duration such as ``30d``."""
    match = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if match is None:
        raise ArgumentTypeError(f"found {text!r}, expected a number with h, d or w, such as 30d")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


def number(text: str) -> int:
    """A count of at least 0."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"found {text!r}, expected an integer of at least 0")
    return int(text)
