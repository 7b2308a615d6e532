"""``manage.py access NAME``: prints a single-use login link, valid for five minutes, and optionally an API token."""

import json
import sys
from argparse import ArgumentParser
from datetime import timedelta
from shlex import quote
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from controlplane.jobs.login_links import issue_login_link
from controlplane.jobs.roles import Role, role_of
from controlplane.jobs.services import audit
from controlplane.people.actors import command_line
from controlplane.people.identities import link
from controlplane.people.models import EmergencyAccount
from controlplane.people.scopes import Scope
from controlplane.people.tokens import TokenRefused, token_create
from paceline.cli.places import MANAGE

TOKEN_DAYS = 30


class Command(BaseCommand):
    """Creates the user if needed, and grants the role."""

    help = (
        "Create a user if needed, and print a one-time login link (this machine only, five minutes), or an API token."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The user, and the role."""
        parser.add_argument("name")
        parser.add_argument("--role", choices=[role.value for role in Role], help="default: operator, for a new user")
        parser.add_argument("--token", action="store_true", help=f"create an API token, valid for {TOKEN_DAYS} days")
        parser.add_argument(
            "--scope",
            action="append",
            default=[],
            choices=list(Scope),
            help="a scope of the token; can be repeated; default: everything its role permits",
        )
        parser.add_argument("--password-stdin", action="store_true", help="read the password from standard input")
        parser.add_argument(
            "--emergency",
            action="store_true",
            help="an admin with a password that works even if local accounts are off (PACELINE_LOCAL_ACCOUNTS=no)",
        )
        parser.add_argument("--subject", help="link the user to this subject of the identity provider")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one line of JSON")

    def handle(self, *args: Any, name: str, role: str | None, token: bool, as_json: bool, **options: Any) -> None:
        """Print credentials; they cannot be printed again."""
        password = sys.stdin.readline().rstrip("\n") if options["password_stdin"] else None
        if options["emergency"] and (password is None or role not in {None, Role.ADMIN}):
            raise CommandError("--emergency: expected --password-stdin, and no --role but admin")
        with transaction.atomic():
            user = _let_in(name, Role.ADMIN if options["emergency"] else role, password)
            if options["emergency"]:
                EmergencyAccount.objects.get_or_create(user=user, defaults={"created_by": command_line()})
            if options["subject"]:
                _link(user, options["subject"])
            made = _token(user, options["scope"]) if token else None
            held = role_of(user)
            detail: dict[str, Any] = {"role": held, "password": password is not None}
            detail["token"] = made[0] if made else None
            detail |= {key: options[key] for key in ("emergency", "subject") if options[key]}
            audit(actor=command_line(), action="access", subject=f"user {name}", detail=detail)
        shown: dict[str, Any] = {"user": name, "role": held}
        if made:
            shown["token"] = made[1]
        shown["login_link"] = settings.PACELINE_URL + issue_login_link(user)
        self.stdout.write(json.dumps(shown) if as_json else _in_words(shown))


def _let_in(name: str, role: str | None, password: str | None) -> User:
    """The user, with at least that role.

    Raises:
        CommandError: if the name is not allowed, or the password is too weak.
    """
    try:
        User.username_validator(name)
    except ValidationError as error:
        raise CommandError(f"{name!r} is not a valid user name: {error.message}") from None
    user = User.objects.filter(username=name).first()
    if user is not None and not user.is_active:
        raise CommandError(f"the account {name!r} is disabled; to enable it: {MANAGE} users enable {quote(name)}")
    user = user or User.objects.create_user(name)  # without a password
    if role or role_of(user) is None:
        user.groups.add(Group.objects.get(name=role or Role.OPERATOR))
    if password is not None:
        try:
            validate_password(password, user)
        except ValidationError as error:
            raise CommandError(f"the password was rejected: {' '.join(error.messages)}") from None
        user.set_password(password)
        user.save(update_fields=["password"])
    return user


def _link(user: User, subject: str) -> None:
    if settings.OIDC is None:
        raise CommandError("--subject: no identity provider is configured (PACELINE_OIDC_ISSUER)")
    try:
        link(user, subject)
    except ValueError as error:
        raise CommandError(f"--subject: {error}") from None


def _token(user: User, scopes: list[str]) -> tuple[str, str]:
    """The id of a new token, and its secret."""
    try:
        row, secret = token_create(
            user=user,
            name="access",
            actor=command_line(),
            lifetime=timedelta(days=TOKEN_DAYS),
            scopes=frozenset(map(Scope, scopes)),
        )
    except TokenRefused as error:
        raise CommandError(f"{error}, by: {MANAGE} credentials --user {user.get_username()} --end ID") from None
    return row.token_key, secret


def _in_words(shown: dict[str, Any]) -> str:
    lines = [f"{shown['user']} has the role {shown['role']}."]
    if "token" in shown:
        lines.append(f"API token, valid for {TOKEN_DAYS} days: {shown['token']}")
    lines.append(f"Login link, valid once within five minutes: {shown['login_link']}")
    return "\n".join(lines)
