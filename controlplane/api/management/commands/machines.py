"""``manage.py machines``: list machines, and cordon, drain, uncordon or test one."""

import json
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from controlplane.api.machine_tests import request_test
from controlplane.api.machines import schedule_machine
from controlplane.api.problems import Problem
from controlplane.fleet.machine_classes import class_of, compared, emulation_note, failed_links, peers_results
from controlplane.fleet.models import Agent, MachineTest
from controlplane.fleet.scheduling import held_slots, in_words
from controlplane.people.actors import command_line
from controlplane.runtime.draining import preview_of
from controlplane.runtime.embedded.redis_server import running_redis
from controlplane.runtime.machine_tests import end_overdue

TO = {
    "cordon": Agent.Scheduling.CORDONED,
    "drain": Agent.Scheduling.DRAINING,
    "uncordon": Agent.Scheduling.OPEN,
}
LOOK_S = 0.5
"""Poll interval of a running test."""


class Command(BaseCommand):
    help = "List machines; cordon (no new processes), drain (its processes move away), uncordon or test one."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", choices=("list", *TO, "test"), nargs="?", default="list")
        parser.add_argument("name", nargs="?", help="name of the machine")
        parser.add_argument("--reason", default="", help="shown on the machine's page")
        parser.add_argument("--preview", action="store_true", help="with drain: show its effect without starting it")
        parser.add_argument("--force", action="store_true", help="with test: also while jobs run on the machine")
        parser.add_argument("--json", action="store_true", help="with list: print JSON instead of text")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "list":
            self._list(as_json=options["json"])
            return
        if not settings.REDIS_URL:
            settings.REDIS_URL = running_redis(settings.DATA_DIR) or ""
        agent = Agent.objects.filter(name=options["name"] or "").first()
        if agent is None:
            raise CommandError(f"machine {options['name']!r} does not exist; list machines with: manage.py machines")
        if options["action"] == "test":
            self._test(agent, force=options["force"])
            return
        if options["action"] == "drain":
            self._preview(agent)
            if options["preview"]:
                return
        try:
            schedule_machine(agent=agent, to=TO[options["action"]], actor=command_line(), reason=options["reason"])
        except Problem as problem:
            raise CommandError(str(problem.detail)) from None
        agent.refresh_from_db()
        self.stdout.write(f"{agent.name} is {in_words(agent)}")

    def _list(self, *, as_json: bool) -> None:
        rows = [
            {
                "name": agent.name,
                "state": agent.state,
                "scheduling": agent.scheduling,
                "reason": agent.scheduling_reason,
                "held_slots": held_slots(agent.pk),
                "labels": agent.labels,
            }
            for agent in Agent.objects.order_by("name")
        ]
        if as_json:
            self.stdout.write(json.dumps(rows))
            return
        for row in rows:
            reason = f" ({row['reason']})" if row["reason"] else ""
            self.stdout.write(
                f"{row['name']}: {row['state']}, {row['scheduling']}{reason}, {row['held_slots']} slots in use"
            )

    def _preview(self, agent: Agent) -> None:
        found = preview_of(agent)
        if not found.moves:
            self.stdout.write(f"no processes run on {agent.name}")
        for move in found.moves:
            self.stdout.write(f"{move.role[:1]}{move.index} of job {move.job} {move.sentence}")
        if found.moves and found.seconds is not None:
            self.stdout.write(f"empty in about {found.seconds:.0f} s")

    def _test(self, agent: Agent, *, force: bool) -> None:
        """Wait for the result, and end the test if it is lost."""
        try:
            row = request_test(agent=agent, actor=command_line(), force=force)
        except Problem as problem:
            raise CommandError(str(problem.detail)) from None
        while row.ended_at is None:
            time.sleep(LOOK_S)
            end_overdue(timezone.now())
            row.refresh_from_db()
        if row.state == MachineTest.State.FAILED:
            raise CommandError(f"the test of {agent.name} failed: {row.failure}")
        for each in compared(row.result, peers_results(agent, Agent.objects.all())):
            self.stdout.write(f"{each.title}: {_number(each.value)} {each.unit}, {each.sentence}")
        for link in failed_links(row.result):
            self.stdout.write(f"Link to {link['machine']}: not measured: {link['failure']}")
        for note in filter(None, (f"Class: {class_of(agent)}", row.note, emulation_note(agent))):
            self.stdout.write(note)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
