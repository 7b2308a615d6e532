"""``manage.py quotas``: lists and sets limits of users and teams."""

import json
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import asdict
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from controlplane.people import quotas
from controlplane.people.actors import command_line
from controlplane.people.models import Quota, Team
from controlplane.people.sizes import read_size

KEPT = -1
"""Default of options that were not given; None removes a limit."""


class Command(BaseCommand):
    """Access to this command implies access to the database; every change is audited."""

    help = "List quotas and their use, or set the quota of a user or a team, or the default quota of users."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subject and the limits."""
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")
        setting = parser.add_subparsers(dest="verb", metavar="VERB").add_parser("set", help="set limits")
        setting.add_argument("kind", choices=("user", "team", "default"))
        setting.add_argument("name", nargs="?", default="")
        for resource, words in quotas.RESOURCES.items():
            option = f"--{resource.replace('_', '-')}"
            kind, sign = (size_limit, "SIZE") if resource in quotas.SIZES else (limit, "N")
            setting.add_argument(option, type=kind, default=KEPT, metavar=sign, help=f"maximum {words}, or none")

    def handle(self, *args: Any, verb: str | None, as_json: bool, **options: Any) -> None:
        """Set limits, then list quotas."""
        if verb == "set":
            given = {name: options[name] for name in quotas.RESOURCES if options[name] != KEPT}
            if not given:
                raise CommandError("no limit given; give one or more, such as --jobs 20 or --slots none")
            quotas.quota_set(**_owner(options["kind"], options["name"]), actor=command_line(), **given)
        others = Quota.objects.select_related("user", "team").exclude(user=None, team=None).order_by("pk")
        rows = [_row(row) for row in [quotas.default_quota(), *others]]
        self.stdout.write(json.dumps(rows) if as_json else "\n".join(map(_line, rows)))


def _owner(kind: str, name: str) -> dict[str, Any]:
    rows: dict[str, Any] = {"user": User.objects.filter(username=name), "team": Team.objects.filter(name=name)}
    if kind == "default":
        return {}
    found = rows[kind].first()
    if found is None:
        raise CommandError(f"{kind} {name!r} does not exist")
    return {kind: found}


def _row(row: Quota) -> dict[str, Any]:
    if row.user is None and row.team is None:
        limits = {name: getattr(row, name) for name in quotas.RESOURCES}
        return {"subject": "default", "used": {}, "limits": limits}
    return asdict(quotas.quota_usage(user=row.user, team=row.team))


def _line(row: dict[str, Any]) -> str:
    used, limits = row["used"], {name: most for name, most in row["limits"].items() if most is not None}
    shown = {name: quotas.amount(name, most) for name, most in limits.items()}
    parts = [f"{name} {used[name]} of {most}" if used else f"{name} {most}" for name, most in shown.items()]
    return f"{row['subject']}: {', '.join(parts) or 'no limits'}"


def size_limit(text: str) -> int | None:
    """The limit in bytes, also where it is written with a unit; None for ``none``."""
    try:
        return limit(text if text == "none" else str(read_size(text)))
    except ValueError as error:
        raise ArgumentTypeError(f"expected {error}, or none") from None


def limit(text: str) -> int | None:
    """The limit; None for ``none``."""
    if text == "none":
        return None
    if not text.isdecimal() or int(text) >= 2**62:
        raise ArgumentTypeError(f"found {text!r}, expected an integer of at least 0, or none")
    return int(text)
