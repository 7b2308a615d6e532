"""``manage.py enroll_machines FOLDER NAME...``: a token in a file for every machine that has not joined yet.

For installations that start control plane and machines together, such as docker-compose.yml: any reader of the folder
can join, once per file. A machine that has joined keeps its own credential, and gets no other token.
"""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from controlplane.fleet.models import Agent
from controlplane.fleet.services import token_create


class Command(BaseCommand):
    """Writes the tokens; run again, it replaces those that were not used."""

    help = "Write a single-use enrolment token into FOLDER/NAME for each machine that has not joined yet."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The folder, and the machines' names."""
        parser.add_argument("folder", type=Path)
        parser.add_argument("names", nargs="+", metavar="name")

    def handle(self, *args: Any, folder: Path, names: list[str], **options: Any) -> None:
        """Skip machines that are known."""
        known = set(Agent.objects.filter(name__in=names).values_list("name", flat=True))
        waiting = [name for name in names if name not in known]
        for name in waiting:
            token, _ = token_create(labels={}, name=name)
            replace(folder / name, token)
        self.stdout.write(f"{len(waiting)} tokens in {folder}; joined already: {', '.join(sorted(known)) or 'none'}")


def replace(file: Path, token: str) -> None:
    """Write the token by rename, readable by its owner only: a machine reads a whole token or none."""
    draft = file.with_name(f".{file.name}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(token)
    draft.replace(file)
