"""``manage.py enroll_machines FOLDER NAME...``: writes a token file for every machine that has not joined yet.

For installations that start control plane and machines together, such as docker-compose.yml: each machine gets
``FOLDER/NAME`` alone, and can join with the ``token`` in it, once. A machine that has joined keeps its own credential,
and gets another token only with ``--again``, for a credential that has expired or was lost.
"""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlplane.api.enrolment import invite
from controlplane.fleet.models import Agent


class Command(BaseCommand):
    """Writes the tokens; if run again, it replaces unused ones."""

    help = "Write a single-use enrolment token into FOLDER/NAME/token for each machine that has not joined yet."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The folder, and the machines' names."""
        parser.add_argument("folder", type=Path)
        parser.add_argument("names", nargs="+", metavar="name")
        parser.add_argument(
            "--again",
            action="store_true",
            help="also for joined machines that are offline because their credential has expired or was lost",
        )

    def handle(self, *args: Any, folder: Path, names: list[str], again: bool, **options: Any) -> None:
        """Skip known machines; with ``again`` only online ones, which have a valid credential."""
        if not folder.is_dir():
            raise CommandError(f"{folder} is not a folder; create the folder from which machines read their tokens")
        for name in names:
            if Path(name).name != name or name in ("", ".."):
                raise CommandError(f"found {name!r}, expected a machine name that is a valid folder name")
        try:
            self._write(folder, names, again=again)
        except OSError as error:
            raise CommandError(
                f"no token was written to {error.filename or folder}: {error.strerror or error}"
            ) from None

    def _write(self, folder: Path, names: list[str], *, again: bool) -> None:
        known = set(Agent.objects.filter(name__in=names).values_list("name", flat=True))
        if again:
            known &= set(Agent.objects.filter(state=Agent.State.ONLINE).values_list("name", flat=True))
        waiting = [name for name in names if name not in known]
        for name in names:  # also for joined machines: mounted folders must exist
            own_folder(folder / name)
        for name in waiting:
            replace(folder / name / "token", invite(user=None, labels={}, name=name).token)
        left_out = "skipped because online" if again else "already joined"
        self.stdout.write(
            f"{len(waiting)} token{'' if len(waiting) == 1 else 's'} in {folder}; "
            f"{left_out}: {', '.join(sorted(known)) or 'none'}"
        )


def own_folder(folder: Path) -> None:
    """Create the machine's folder, in place of the token file of earlier releases."""
    if folder.is_file():
        folder.unlink()
    folder.mkdir(mode=0o700, exist_ok=True)


def replace(file: Path, token: str) -> None:
    """Write the token by rename, readable by its owner only: a machine reads a whole token or none."""
    draft = file.with_name(f".{file.name}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(token)
    draft.replace(file)
