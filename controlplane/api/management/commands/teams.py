"""``manage.py teams``: manages teams, their members, and what they own."""

import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from controlplane.api.machines import note_change
from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.people import teams
from controlplane.people.actors import command_line
from controlplane.people.models import Membership, Team
from controlplane.protocol.text import is_plain


class Command(BaseCommand):
    """Access to this command implies access to the database; every change is audited."""

    help = "List teams; create, weigh or delete one; set its members; assign jobs and machines to it."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommands and their arguments."""
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")
        verbs = parser.add_subparsers(dest="verb", metavar="VERB")
        for verb, about in (("create", "a new team"), ("weigh", "change its weight")):
            each = verbs.add_parser(verb, help=about)
            each.add_argument("team", type=team_name)
            each.add_argument("--weight", type=weight, default=1.0, help="relative to other teams (default: 1)")
        verbs.add_parser("delete", help="delete a team that owns nothing").add_argument("team")
        member = verbs.add_parser("member", help="add a member, or change its role")
        leave = verbs.add_parser("leave", help="end a membership")
        for each in (member, leave):
            each.add_argument("team")
            each.add_argument("user")
        member.add_argument("--role", choices=Membership.Role.values, default="member")
        for verb, about in (
            ("own", "assign jobs and machines to it"),
            ("release", "release jobs and machines from it, so that all users can see them"),
        ):
            each = verbs.add_parser(verb, help=about)
            each.add_argument("team")
            each.add_argument("--job", type=int, action="append", default=[], metavar="N")
            each.add_argument("--machine", action="append", default=[], metavar="NAME")

    def handle(self, *args: Any, verb: str | None, as_json: bool, **options: Any) -> None:
        """Make the change, then list teams."""
        try:
            self._change(verb, options)
        except teams.TeamRefused as refused:
            raise CommandError(str(refused)) from None
        rows = [_row(team) for team in Team.objects.order_by("name")]
        self.stdout.write(json.dumps(rows) if as_json else "\n".join(map(_line, rows)) or "no teams")

    def _change(self, verb: str | None, options: dict[str, Any]) -> None:
        actor = command_line()
        if verb is None:
            return
        if verb == "create":
            teams.team_create(name=options["team"], weight=options["weight"], actor=actor)
            return
        team = Team.objects.filter(name=options["team"]).first()
        if team is None:
            raise CommandError(f"team {options['team']!r} does not exist; create it with: manage.py teams create")
        if verb == "weigh":
            teams.team_weigh(team=team, weight=options["weight"], actor=actor)
        elif verb == "delete":
            teams.team_delete(team=team, actor=actor)
        elif verb in ("member", "leave"):
            user = User.objects.filter(username=options["user"]).first()
            if user is None:
                raise CommandError(f"user {options['user']!r} does not exist; create it with: manage.py access NAME")
            if verb == "member":
                teams.member_set(team=team, user=user, role=options["role"], actor=actor)
            elif not teams.member_remove(team=team, user=user, actor=actor):
                raise CommandError(f"{user.username} is not a member of team {team}")
        else:
            for row in _things(options["job"], options["machine"]):
                if verb == "release" and row.team != team:
                    raise CommandError(f"{row} is not owned by team {team}")
                teams.owner_set(row=row, team=team if verb == "own" else None, actor=actor)
            note_change()


def _things(jobs: list[int], machines: list[str]) -> list[Job | Agent]:
    found: list[Job | Agent] = []
    for number in jobs:
        job = Job.objects.filter(pk=number).first()
        if job is None:
            raise CommandError(f"job {number} does not exist")
        found.append(job)
    for name in machines:
        agent = Agent.objects.filter(name=name).first()
        if agent is None:
            raise CommandError(f"machine {name!r} does not exist; list machines with: manage.py machines")
        found.append(agent)
    return found


def _row(team: Team) -> dict[str, Any]:
    members = team.memberships.select_related("user").order_by("joined_at")
    return {
        "name": team.name,
        "weight": team.weight,
        "members": {row.user.username: row.role for row in members},
        "jobs": teams.owned_by(team)["jobs"],
        "machines": list(Agent.objects.filter(team=team).order_by("name").values_list("name", flat=True)),
    }


def _line(row: dict[str, Any]) -> str:
    members = ", ".join(f"{name} ({role})" for name, role in row["members"].items()) or "no members"
    machines = ", ".join(row["machines"]) or "no machines"
    jobs = {0: "no jobs", 1: "1 job"}.get(row["jobs"], f"{row['jobs']} jobs")
    return f"{row['name']}: weight {row['weight']:g}; {members}; {jobs}; {machines}"


def team_name(text: str) -> str:
    """The name, if it can be one."""
    if not 0 < len(text) <= 60 or not is_plain(text) or "/" in text:
        raise ArgumentTypeError(f"found {text!r}, expected 1 to 60 characters without / and control characters")
    return text


def weight(text: str) -> float:
    """The weight, if it can be one."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not teams.LEAST_WEIGHT <= number <= teams.MOST_WEIGHT:
        raise ArgumentTypeError(
            f"found {text!r}, expected a number from {teams.LEAST_WEIGHT:g} to {teams.MOST_WEIGHT:g}"
        )
    return number
