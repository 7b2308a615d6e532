"""``manage.py credentials``: lists and revokes users' API tokens and sessions."""

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from controlplane.people.actors import command_line
from controlplane.people.sessions import live_sessions, sessions_end
from controlplane.people.tokens import limit_of, live_tokens, tokens_revoke


class Command(BaseCommand):
    """Access to this command implies access to the database; revocations are audited."""

    help = "List valid API tokens and sessions of all users or one, and revoke some or all."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options that select users and credentials."""
        parser.add_argument("--user", help="only those of this user")
        parser.add_argument("--end", nargs="+", metavar="ID", help="revoke these tokens and sessions")
        parser.add_argument("--end-all", action="store_true", help="revoke all of --user")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")

    def handle(
        self, *args: Any, user: str | None, end: list[str] | None, end_all: bool, as_json: bool, **options: Any
    ) -> None:
        """Revoke the selected credentials, then list the remaining ones."""
        if end_all and not user:
            raise CommandError("--end-all: found no --user, expected the user to revoke credentials of")
        owner = User.objects.filter(username=user).first() if user else None
        if user and owner is None:
            raise CommandError(f"there is no user {user!r}")
        if end or end_all:
            self._end(owner, None if end_all else set(end or ()))
        found = {
            "tokens": [_token(row) for row in live_tokens(owner)],
            "sessions": [_session(row) for row in live_sessions(owner)],
        }
        self.stdout.write(json.dumps(found, default=str) if as_json else _in_words(found))

    def _end(self, owner: User | None, ids: set[str] | None) -> None:
        tokens, sessions = live_tokens(owner), live_sessions(owner)
        if ids is not None:
            tokens, sessions = tokens.filter(token_key__in=ids), sessions.filter(number__in=ids)
            known = {*tokens.values_list("token_key", flat=True), *sessions.values_list("number", flat=True)}
            if unknown := ids - known:
                raise CommandError(f"there is no token or session {', '.join(sorted(unknown))}; nothing was revoked")
        actor = command_line()
        ended = tokens_revoke(tokens, actor=actor) + sessions_end(sessions, actor=actor)
        self.stderr.write(f"{ended} ended")


def _token(row: Any) -> dict[str, Any]:
    grant = getattr(row, "grant", None)
    return {
        "id": row.token_key,
        "user": row.user.get_username(),
        "name": grant.name if grant else "",
        "role": limit_of(row),
        "scopes": grant.scopes if grant else "",
        "expires_at": row.expiry,
        "used_at": grant.used_at if grant else None,
    }


def _session(row: Any) -> dict[str, Any]:
    return {
        "id": row.number,
        "user": row.user.get_username(),
        "address": row.address,
        "signed_in_at": row.signed_in_at,
        "expires_at": row.expire_date,
    }


def _in_words(found: dict[str, list[dict[str, Any]]]) -> str:
    lines = []
    for kind, rows in found.items():
        lines.append(f"{kind}: {len(rows)}")
        lines += ["  " + "  ".join(f"{key}={value}" for key, value in row.items() if value) for row in rows]
    return "\n".join(lines)
