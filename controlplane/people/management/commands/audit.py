"""``manage.py audit``: exports the audit trail as JSON lines, and verifies it."""

import json
import time
from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from controlplane.people import audit_chain

FOLLOW_S: Final = 1.0


class Command(BaseCommand):
    """Exports or verifies the audit trail, without any change."""

    help = "Print the audit log as JSON lines, or verify that no entry was changed or removed."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommand and its options."""
        parser.add_argument("what", nargs="?", choices=("export", "verify"), default="export")
        parser.add_argument("--since", type=int, default=0, metavar="SEQUENCE", help="export entries after this one")
        parser.add_argument("--follow", action="store_true", help="keep printing new entries until Ctrl-C")
        parser.add_argument("--head", default="", metavar="SEQUENCE:SEAL", help="verify that this seal still exists")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print the verdict as JSON")

    def handle(self, *args: Any, what: str, since: int, follow: bool, head: str, as_json: bool, **options: Any) -> None:
        """Export, or verify."""
        if what == "verify":
            self._verify(head, as_json)
            return
        try:
            while True:
                for document in audit_chain.exported(since):
                    self.stdout.write(audit_chain.line_of(document))
                    since = document["sequence"]
                if not follow:
                    return
                self.stdout.flush()
                time.sleep(FOLLOW_S)
        except KeyboardInterrupt:
            return

    def _verify(self, head: str, as_json: bool) -> None:
        if head and not head.partition(":")[0].isdecimal():
            raise CommandError(f"--head: found {head!r}, expected SEQUENCE:SEAL as verify printed it")
        found = audit_chain.verify(timezone.now(), noted=head)
        if as_json:
            fields = {"sealed": found.sealed, "head": found.head, "unsealed": found.unsealed, "faults": found.faults}
            self.stdout.write(json.dumps(fields))
        else:
            self.stdout.write(f"{found.sealed} entries are sealed, {found.unsealed} not yet. Head: {found.head or '-'}")
        if found.faults:
            raise CommandError("the audit trail is not as it was written:\n" + "\n".join(found.faults[:100]))
