"""``manage.py submit SPEC.yaml``: submits a job and, with ``--watch``, follows it to its end."""

import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, cast

import msgspec
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from controlplane.api.yaml import NoYaml, YamlRefused, load_yaml
from controlplane.core.states import JobState
from controlplane.jobs.roles import Role
from controlplane.people.tokens import token_create
from controlplane.protocol.text import printable
from paceline import Client, Patience, Refused, Unreachable
from paceline.cli.places import MANAGE
from paceline.client.types import Job
from paceline.client.wording import in_one_line

SERVICE_USER = "command-line"
PATIENCE = Patience(tries=3)
NOT_SUCCEEDED, NOT_ACCEPTED, NOT_REACHED, INTERRUPTED = 1, 2, 3, 130


class Command(BaseCommand):
    help = (
        "Submit a job. Exit code 0: accepted (with --watch: succeeded); 1: it failed or was cancelled; "
        "2: the spec or the token was rejected; 3: the control plane does not respond."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("spec", metavar="SPEC.yaml", help="the job, in YAML or JSON; - reads standard input")
        parser.add_argument(
            "--priority",
            type=int,
            metavar="N",
            help="-100 to 100, overrides the spec; jobs with higher priority start first",
        )
        parser.add_argument(
            "--team", metavar="NAME", help="the team that owns the job (default: the first that you joined, if any)"
        )
        parser.add_argument("--watch", action="store_true", help="watch the job until it ends")
        parser.add_argument("--json", action="store_true", help="print one JSON document per line")
        parser.add_argument("--url", default=settings.PACELINE_URL, help="the control plane (default: %(default)s)")
        parser.add_argument(
            "--token-file", type=Path, help="file with an API token (default: PACELINE_API_TOKEN, then the local token)"
        )

    def handle(self, *args: Any, spec: str, watch: bool, url: str, **options: Any) -> None:
        document = _with_priority(_read(spec), options["priority"])
        try:
            with _token(options["token_file"]) as token, Client(url, token, patience=PATIENCE) as client:
                job = client.submit(document, team=options["team"])
                self._print_accepted(job, url, as_json=options["json"] and not watch, silent=options["json"])
                if watch:
                    job = self._follow(client, job, as_json=options["json"])
        except Refused as refusal:
            raise CommandError("\n".join(refusal.lines()), returncode=NOT_ACCEPTED) from None
        except Unreachable as error:
            cure = f"start it with: {MANAGE} up, or set --url"
            raise CommandError(f"{error}; {cure}", returncode=NOT_REACHED) from None
        except KeyboardInterrupt:
            raise CommandError("stopped watching; the job continues", returncode=INTERRUPTED) from None
        if watch and job.state != JobState.SUCCEEDED:
            sys.exit(NOT_SUCCEEDED)

    def _print_accepted(self, job: Job, url: str, *, as_json: bool, silent: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(msgspec.to_builtins(job)))
        elif not silent:
            self.stdout.write(f"job {job.id} ({printable(job.name)}) submitted: {url}/jobs/{job.id}/")

    def _follow(self, client: Client, job: Job, *, as_json: bool) -> Job:
        console = Console(file=cast(IO[str], self.stdout))
        progress = nullcontext(None) if as_json else _progress(console)
        with progress as bar:
            task = bar.add_task("", total=job.spec.get("stop", {}).get("iterations"), numbers="") if bar else None
            for job in client.watch(job.id):  # noqa: B020 - the last one is what is returned
                if bar is None or task is None:
                    self.stdout.write(json.dumps(msgspec.to_builtins(job)))
                else:
                    bar.update(task, completed=job.iteration, description=job.state, numbers=in_one_line(job))
        if not as_json:
            self.stdout.write(f"job {job.id} {job.state}: {printable(job.reason) or in_one_line(job)}")
        return job


def _read(spec: str) -> str:
    try:
        return sys.stdin.read() if spec == "-" else Path(spec).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{spec}: cannot be read ({error})", returncode=NOT_ACCEPTED) from None


def _with_priority(text: str, priority: int | None) -> str:
    """The spec with this priority; anything but a mapping is sent unchanged: the control plane explains it."""
    if priority is None:
        return text
    try:
        document = load_yaml(text)
    except (YamlRefused, NoYaml):
        return text
    return json.dumps({**document, "priority": priority}) if isinstance(document, dict) else text


@contextmanager
def _token(file: Path | None) -> Iterator[str]:
    given = _read(str(file)).strip() if file else os.environ.get("PACELINE_API_TOKEN", "").strip()
    if not given.isascii() or not given.isprintable() or " " in given:
        where = str(file) if file else "PACELINE_API_TOKEN"
        cure = f"print one with: {MANAGE} access NAME --token"
        raise CommandError(f"{where}: not an API token (letters and digits only); {cure}", returncode=NOT_ACCEPTED)
    with nullcontext(given) if given else _local_token() as token:
        yield token


@contextmanager
def _local_token(lifetime: timedelta = timedelta(days=7)) -> Iterator[str]:
    """A token of the operator ``command-line`` for the duration of the block."""
    user, created = User.objects.get_or_create(username=SERVICE_USER)
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    user.groups.add(Group.objects.get_or_create(name=Role.OPERATOR)[0])
    row, token = token_create(user=user, name="manage.py submit", actor=SERVICE_USER, lifetime=lifetime)
    try:
        yield token
    finally:
        row.delete()


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[numbers]}"), TimeElapsedColumn())
    return Progress(*columns, console=console)
