"""``manage.py report JOB -o FILE.html``: one job as one self-contained file."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlplane.jobs.models import Job
from controlplane.jobs.stored_specs import UnreadableSpec
from frontend.formats import size
from frontend.report import render_report


class Command(BaseCommand):
    help = "Write a job as one self-contained HTML file: its results, figures, findings, decisions and spec."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("job", type=int, help="job ID")
        parser.add_argument("-o", "--output", required=True, help="the file to write, or - for standard output")

    def handle(self, *args: Any, job: int, output: str, **options: Any) -> None:
        found = Job.objects.filter(pk=job).first()
        if found is None:
            raise CommandError(f"job {job} does not exist; manage.py and the service must use the same database")
        try:
            document = render_report(found)
        except UnreadableSpec as error:
            raise CommandError(f"{error}.") from None
        if output == "-":
            sys.stdout.write(document)
            return
        try:
            Path(output).write_text(document, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"cannot write {output}: {error.strerror}; name a file in an existing folder") from None
        self.stdout.write(f"job {job}: {output}, {size(len(document.encode()))}")
