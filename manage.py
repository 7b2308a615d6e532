#!/usr/bin/env python
"""Django's command line: ``python manage.py help`` lists what there is."""

import os
import sys


def main() -> None:
    """Run the command; an interruption ends it without a traceback, also while it is still being imported."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")
    try:
        run(sys.argv)
    except KeyboardInterrupt:
        sys.exit(130)


def run(arguments: list[str]) -> None:
    """Run the command that the arguments name; settings that were refused are one sentence on standard error."""
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(arguments)
    except ImproperlyConfigured as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
