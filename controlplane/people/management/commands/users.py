"""``manage.py users``: lists users, enables and disables accounts."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from controlplane.people.actors import command_line
from controlplane.people.users import SwitchRefused, UserLine, line_of, user_disable, user_enable, users_listed


class Command(BaseCommand):
    """Access to this command implies access to the database; every change is audited."""

    help = "List users with role, ways to sign in, valid tokens and sessions; or enable and disable accounts."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options."""
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")
        verbs = parser.add_subparsers(dest="verb", metavar="VERB")
        for verb, words in (
            ("disable", "disable an account: its sessions and tokens end"),
            ("enable", "enable an account again"),
        ):
            verbs.add_parser(verb, help=words).add_argument("name")

    def handle(self, *args: Any, verb: str | None, as_json: bool, **options: Any) -> None:
        """Make the requested change, then list the users."""
        if verb:
            user = User.objects.filter(username=options["name"]).first()
            if user is None:
                raise CommandError(f"there is no user {options['name']!r}")
            switch = user_disable if verb == "disable" else user_enable
            try:
                if not switch(user=user, actor=command_line()):
                    raise CommandError(f"the account {user.get_username()!r} is {verb}d already")
            except SwitchRefused as refused:
                raise CommandError(str(refused)) from None
        lines = [line_of(user) for user in users_listed()]
        rows = [asdict(line) for line in lines]
        self.stdout.write(json.dumps(rows, default=str) if as_json else "\n".join(map(_words, lines)) or "no users")


def _words(line: UserLine) -> str:
    ways = [word for word in ("password", "provider", "emergency") if getattr(line, word)]
    last = f"{line.last_login_at:%Y-%m-%d %H:%M} UTC" if line.last_login_at else "never"
    return (
        f"{line.username}: {line.role or 'no role'}{'' if line.active else ', disabled'}; "
        f"{' and '.join(ways) or 'login links'}; last sign-in {last}; {_counted(line.tokens, 'token')}, "
        f"{_counted(line.sessions, 'session')}"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
