"""``manage.py up``: the whole control plane on this machine, until Ctrl-C."""

import sys
from argparse import ArgumentParser
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from controlplane.runtime.embedded.control_plane import ControlPlane, start_control_plane
from controlplane.runtime.embedded.errors import CannotStart, Interrupted
from controlplane.runtime.embedded.ground import own_folder
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.supervisor import Supervisor


class Command(BaseCommand):
    """Starts every service, prints the address, and ends all of them when it ends."""

    help = (
        "Run the whole control plane on this machine: web, Celery, beat, and a Redis of its own if none is configured."
    )
    requires_system_checks = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to listen."""
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: %(default)s)")

    def handle(self, *args: Any, host: str, port: int, **options: Any) -> None:
        """Run until the end is asked for."""
        plane = ControlPlane(folder=Path(settings.DATA_DIR), host=host, port=port)
        try:
            with ExitStack() as stack:
                interruption = stack.enter_context(Interruption())
                stack.enter_context(own_folder(plane.folder))
                supervisor = stack.enter_context(Supervisor(interruption))
                _, notices = start_control_plane(plane, supervisor)
                for notice in notices:
                    self.stdout.write(notice)
                self.stdout.write(f"Paceline runs at {plane.url} - data and logs in {plane.folder} - Ctrl-C ends it.")
                self.stdout.flush()
                supervisor.watch()
        except CannotStart as error:
            self.stderr.write(str(error))
            sys.exit(1)
        except Interrupted:
            self.stdout.write("Stopped. Nothing is left running.")
