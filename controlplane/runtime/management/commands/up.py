"""``manage.py up``: the whole control plane on this machine, until Ctrl-C."""

import os
import shlex
import sys
from argparse import ArgumentParser
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from controlplane.runtime.embedded.control_plane import INSECURE, ControlPlane, start_control_plane
from controlplane.runtime.embedded.errors import CannotStart, Interrupted
from controlplane.runtime.embedded.ground import announced, check_exposure, free_port, own_folder
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.supervisor import Supervisor
from paceline.cli.places import MANAGE


class Command(BaseCommand):
    """Starts every service, prints the address, and ends all of them when it ends."""

    help = (
        "Run the whole control plane on this machine: web, Celery, beat, and an embedded Redis if none is configured."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the address to listen on."""
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="its port; 0: any free one (default: %(default)s)")
        parser.add_argument("--insecure", action="store_true", help=INSECURE)

    def handle(self, *args: Any, host: str, port: int, insecure: bool, **options: Any) -> None:
        """Run until a signal to end arrives."""
        plane = ControlPlane(folder=Path(settings.DATA_DIR), host=host, port=port or free_port(), settings=configured())
        try:
            check_exposure(host, insecure=insecure)
            with ExitStack() as stack:
                interruption = stack.enter_context(Interruption())
                stack.enter_context(own_folder(plane.folder))
                supervisor = stack.enter_context(Supervisor(interruption, say=self._say))
                _, notices = start_control_plane(plane, supervisor)
                stack.enter_context(announced(plane.folder, plane.url))
                for notice in notices:
                    self._say(notice)
                self._say(f"Paceline runs at {plane.url} - data and logs in {plane.folder} - press Ctrl-C to stop.")
                self._say(
                    f"To sign in, run in another terminal: {data_folder_setting()}{MANAGE} access NAME --role admin"
                )
                supervisor.watch()
        except CannotStart as error:
            self.stderr.write(str(error))
            sys.exit(1)
        except Interrupted:
            self.stdout.write("Stopped. All processes have ended.")

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def data_folder_setting() -> str:
    """What another terminal must set to find the same database; empty with the default folder."""
    folder = os.environ.get("PACELINE_DATA_DIR", "")
    return f"PACELINE_DATA_DIR={shlex.quote(str(Path(folder).absolute()))} " if folder else ""


def configured() -> dict[str, str]:
    """The address that the operator configured, such as a proxy's, otherwise the listening one."""
    return {"PACELINE_URL": url} if (url := os.environ.get("PACELINE_URL", "")) else {}
