"""Django's command line, which ``manage.py`` and the installed ``paceline`` share."""

import atexit
import os
import secrets
import sys
import tempfile
from contextlib import suppress

from paceline.cli.places import missing_package


def main() -> None:
    """Run the command; an interruption ends it without a traceback, also while it is still being imported."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")
    try:
        run(sys.argv)
    except KeyboardInterrupt:
        sys.exit(130)


def run(arguments: list[str]) -> None:
    """Run the command that the arguments name; refused settings or a broken database are one sentence."""
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db import DatabaseError
    except ModuleNotFoundError as error:
        sys.exit(missing_package(error))

    if arguments[1:2] == ["demo"]:
        leave_checkout_alone()

    try:
        execute_from_command_line(arguments)
    except ImproperlyConfigured as error:
        sys.exit(str(error))
    except DatabaseError as error:
        from controlplane.config.database_errors import sentence

        if "--traceback" in arguments or (message := sentence(error)) is None:
            raise
        sys.exit(message)


def leave_checkout_alone() -> None:
    """The demo makes a folder and a secret for its services; its own process must leave none in the checkout."""
    os.environ["SECRET_KEY"] = secrets.token_urlsafe(64)
    with suppress(OSError):  # the demo reports a missing temporary folder itself
        folder = tempfile.TemporaryDirectory(prefix="paceline-demo-", ignore_cleanup_errors=True)
        atexit.register(folder.cleanup)
        os.environ["PACELINE_DATA_DIR"] = folder.name


if __name__ == "__main__":
    main()
