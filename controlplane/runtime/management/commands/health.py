"""``manage.py health SERVICE``: exit code 0 if that service works, otherwise 1 and the reason. For containers."""

import socket
import sys
import time
from argparse import ArgumentParser
from typing import Any

from celery import current_app
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from controlplane.runtime import names
from controlplane.runtime.broker_address import broker_url
from controlplane.runtime.embedded.redis_server import running_redis
from controlplane.runtime.redis import shared

ANSWER_S = 5.0
STALE_S = 15.0
"""Beat's tasks run each second; after this long without any, beat or a worker has stopped."""


class Command(BaseCommand):
    """Checks a service by a request, or by the time of its last work."""

    help = "Check one of the background services of this host."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the name of the service."""
        parser.add_argument("service", choices=["decisions", "history", "beat"])

    def handle(self, *args: Any, service: str, **options: Any) -> None:
        """Exit with 1 unless the service is healthy."""
        if not settings.REDIS_URL:
            use_running()
        trouble = beat_trouble() if service == "beat" else celery_trouble(service)
        if trouble:
            self.stderr.write(trouble)
            sys.exit(1)
        self.stdout.write(f"{service}: healthy")


def use_running() -> None:
    """Use the Redis of the control plane that ``up`` runs with this data folder.

    Raises:
        CommandError: if none runs.
    """
    url = running_redis(settings.DATA_DIR)
    if url is None:
        raise CommandError(
            f"REDIS_URL is not set, and no control plane of `manage.py up` runs with {settings.DATA_DIR}: "
            "set REDIS_URL or PACELINE_DATA_DIR"
        )
    settings.REDIS_URL, current_app.conf.broker_url = url, broker_url(url)


def celery_trouble(queue: str) -> str:
    """The problem of this host's worker for ``queue``; empty if it answers."""
    name = f"{queue}@{socket.gethostname()}"
    answers = current_app.control.ping(destination=[name], timeout=ANSWER_S)
    return "" if answers else f"{name} did not answer within {ANSWER_S:.0f} s"


def beat_trouble() -> str:
    """The problem of the tasks that beat sends each second; empty if they run."""
    last_ms = int(shared().get(names.REAPER_BEAT) or 0)
    age_s = time.time() - last_ms / 1000
    return "" if age_s < STALE_S else f"the last periodic task ran {age_s:.0f} s ago, expected one each second"
