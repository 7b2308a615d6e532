"""``manage.py access NAME``: lets somebody in - an API token and a login link that works once, for five minutes."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from knox.models import AuthToken

from controlplane.jobs.login_links import issue_login_link
from controlplane.jobs.roles import Role


class Command(BaseCommand):
    """Makes the user if there is none of that name, and gives the role if they have it not yet."""

    help = "Make a user if need be, and print an API token and a one-time login link (this machine only, five minutes)."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Who, and what they may do."""
        parser.add_argument("name")
        parser.add_argument("--role", choices=[role.value for role in Role], default=Role.OPERATOR.value)
        parser.add_argument(
            "--password-stdin", action="store_true", help="set the password to a line of standard input"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one line of JSON")

    def handle(self, *args: Any, name: str, role: str, password_stdin: bool, as_json: bool, **options: Any) -> None:
        """Nothing that it prints can be shown again."""
        try:
            User.username_validator(name)
        except ValidationError as error:
            raise CommandError(f"the name {name!r} cannot be a user's: {error.message}") from None
        user = User.objects.filter(username=name).first() or User.objects.create_user(name)  # without a password
        user.groups.add(Group.objects.get(name=role))
        if password_stdin:
            user.set_password(sys.stdin.readline().rstrip("\n"))
            user.save(update_fields=["password"])
        _, token = AuthToken.objects.create(user)
        link = settings.PACELINE_URL + issue_login_link(user)
        if as_json:
            self.stdout.write(json.dumps({"user": name, "role": role, "token": token, "login_link": link}))
        else:
            self.stdout.write(
                f"API token of {name} ({role}): {token}\nLogin link, once and within five minutes: {link}"
            )
