"""``manage.py replay JOB``: checks whether the engine now makes the same decisions as when the job ran."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError

from controlplane.core.engine import ENGINE_VERSION
from controlplane.policies.registry import resolve
from controlplane.runtime.recorded_jobs import recorded_decisions, recorded_log
from controlplane.simulator.replay import Replayed, replay
from controlplane.telemetry.job_outlines import NotRecorded, recorded_job

DIFFERS, REFUSED = 1, 2


class Command(BaseCommand):
    help = (
        "Replay a job's recorded events through the engine and report the first decision that differs. "
        "Exit code 0: no difference; 1: a difference; 2: the job cannot be replayed."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("job", type=int, help="job ID")
        parser.add_argument("--json", action="store_true", help="one JSON document")

    def handle(self, *args: Any, job: int, **options: Any) -> None:
        try:
            is_over = recorded_job(job).is_over
        except NotRecorded as error:
            raise CommandError(str(error), returncode=REFUSED) from None
        found = replay(recorded_log(job), recorded_decisions(job), job=job, resolve=resolve, is_over=is_over)
        self.stdout.write(self._document(job, found) if options["json"] else self._sentence(job, found))
        if found.difference is not None:
            sys.exit(DIFFERS)

    def _sentence(self, job: int, found: Replayed) -> str:
        so_far = f"job {job}, {found.entries:,} events, {found.decisions:,} decisions, engine {ENGINE_VERSION}"
        if found.difference is None:
            return f"{so_far}: all decisions equal the recorded ones"
        return f"{so_far}: the first difference is {found.difference.sentence}"

    def _document(self, job: int, found: Replayed) -> str:
        return json.dumps({"job": job, "engine": ENGINE_VERSION, **msgspec.to_builtins(found)})
